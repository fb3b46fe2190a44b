"""The simulated robot as a process: what it says and hears over DDS."""

import json
import signal

import numpy as np
from rclpy.qos import DurabilityPolicy, QoSProfile, qos_profile_sensor_data
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import String
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

NODE = "vla_runtime.sim.robot_node"
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
PARAMETERS = ("--ros-args", "-p")


def seconds(stamp):
    return stamp.sec + stamp.nanosec * 1e-9


def last(messages):
    return json.loads(messages[-1][1].data)


def straight(ros, names, start, goal, duration_s):
    """From rest to rest, stamped now: position and velocity on a 20 ms grid."""
    message = JointTrajectory(joint_names=names)
    message.header.stamp = ros.node.get_clock().now().to_msg()
    for t in np.arange(0.0, duration_s + 0.01, 0.02):
        s = t / duration_s
        point = JointTrajectoryPoint(
            positions=start + (goal - start) * (10 * s**3 - 15 * s**4 + 6 * s**5),
            velocities=(goal - start) * (30 * s**2 - 60 * s**3 + 30 * s**4) / duration_s,
        )
        point.time_from_start.sec, point.time_from_start.nanosec = divmod(round(t * 1e9), 10**9)
        message.points.append(point)
    message.points[-1].velocities = np.zeros(len(names))
    return message


def test_joints_cameras_and_figures(spawn, ros, tmp_path):
    log = tmp_path / "run.npz"
    robot = spawn(NODE, *PARAMETERS, f"log_path:={log}", "-p", "seed:=4")
    states = ros.listen(JointState, "joint_states")
    front = ros.listen(Image, "front/image_raw", qos_profile_sensor_data)
    wrist = ros.listen(Image, "wrist/image_raw", qos_profile_sensor_data)
    status = ros.latched(String, "sim/status")
    figures = ros.listen(String, "sim/controller")
    ros.wait(lambda: len(states) > 50 and len(front) > 30 and len(wrist) > 30, 30.0, "joint states and pictures")

    # Never faster than the rate; how much slower is a matter of the machine, and no test's.
    for messages, rate in ((states, 100), (front, 30), (wrist, 30)):
        distances = np.diff([seconds(m.header.stamp) for _, m in messages])
        assert (distances > 0).all()
        assert np.median(distances) > 0.8 / rate
    picture = front[-1][1]
    assert (picture.encoding, picture.height, picture.width, picture.step) == ("rgb8", 96, 96, 288)
    assert len(picture.data) == 96 * 96 * 3
    assert np.std(np.frombuffer(picture.data, np.uint8)) > 10
    assert bytes(picture.data) != bytes(wrist[-1][1].data)

    commands = ros.publisher(JointTrajectory, "joint_trajectory")
    state = states[-1][1]
    start = np.array(state.position)
    goal = start + np.array([0.4, 0.1, -0.1, 0.0, 0.2, -0.3])
    commands.publish(straight(ros, state.name, start, goal, 0.8))
    ros.wait(lambda: np.abs(np.array(states[-1][1].position) - goal).max() < 0.02, 5.0, "the arm at its goal")
    wrong = straight(ros, state.name, goal, start, 0.8)
    wrong.points[-1].velocities = [0.1] * 6
    commands.publish(wrong)
    counted = ros.wait(lambda: figures and last(figures)["rejected"] and last(figures), 5.0, "the rejection")
    assert counted["rejected"] == {"end_velocity": 1}
    assert counted["accepted"] == 1
    assert counted["step_violations"] == counted["position_violations"] == 0
    assert "Velocity of last trajectory point of joint" in robot.log()
    assert last(status)["seed"] == 4

    assert robot.stop() == 0
    with np.load(log, allow_pickle=False) as saved:
        assert saved["arrival_rejected"].tolist() == ["", "end_velocity"]
        moved = saved["commanded"][-1] - saved["commanded"][0]
        assert np.abs(moved - (goal - start)).max() < 0.02


def test_episodes_and_reset(spawn, ros):
    robot = spawn(NODE, *PARAMETERS, "cameras:=false")
    status = ros.latched(String, "sim/status")
    states = ros.listen(JointState, "joint_states")
    ros.wait(lambda: status and states, 30.0, "the robot")
    assert last(status)["episode"] == 1
    episodes = ros.publisher(String, "sim/episode", LATCHED)
    episodes.publish(String(data=json.dumps({"seed": 1_000_003, "instruction": "lift the green cube"})))
    now = ros.wait(lambda: last(status)["episode"] == 2 and last(status), 5.0, "the second episode")
    assert (now["seed"], now["colour"], now["success"], now["problem"]) == (1_000_003, "green", False, "")
    for bad in ("{", '{"seed": "x"}', '{"seed": 1, "instruction": "lift the moon"}', "[]"):
        seen = len(status)
        episodes.publish(String(data=bad))
        ros.wait(lambda: len(status) > seen and last(status)["problem"], 5.0, f"the complaint about {bad}")  # noqa: B023
    assert last(status)["episode"] == 2
    assert ros.call(Trigger, "sim_robot/reset").success
    ros.wait(lambda: last(status)["episode"] == 3, 5.0, "the third episode")
    robot.signal(signal.SIGTERM)
    assert robot.wait(10.0) == 0


def test_a_bad_parameter_is_named(spawn, ros):
    robot = spawn(NODE, *PARAMETERS, "distro:=foxy", "-p", "cameras:=false")
    assert robot.wait(30.0) == 1
    assert "distro is 'foxy'; it must be one of humble, jazzy, kilted, rolling" in robot.log()
    assert "Traceback" not in robot.log()
