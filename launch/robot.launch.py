"""A policy on a robot: watchdog, executor and policy, each in a process of its own.

    ros2 launch vla_runtime robot.launch.py bundle:=/opt/bundles/pick robot:=so101 \
        cameras:='front=/camera/image_raw wrist=/wrist/image_raw'

The robot's own bring-up (driver, controllers, cameras) runs beside it. See docs/first-robot.md.
"""

import sys

from launch.action import Action
from launch.actions import ExecuteProcess, OpaqueFunction, SetEnvironmentVariable
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from launch import LaunchContext, LaunchDescription
from vla_runtime.nodes.robot_file import load_robot
from vla_runtime.paths import share
from vla_runtime.toolchain.launching import Backoff, argument, pairs, parameters, respawned, truth

ARGUMENTS = [
    argument("bundle", "", "Directory of the policy's bundle (policy.yaml and its stages)."),
    argument("robot", "",
             "The robot's limits and named poses: a YAML file, or one of config/robots (so101, ur5e, franka_fr3, "
             "viperx_bimanual, kinova_gen3)."),
    argument("params_file", "",
             "Your parameters, over the defaults in config/{watchdog,executor,policy}.yaml; what the other "
             "arguments say goes over both."),
    argument("namespace", "", "Namespace of the three nodes and of all their topics."),
    argument("cameras", "",
             "Topics of the cameras that the bundle names: 'front=/camera/image_raw wrist=/wrist/image_raw'. "
             "Without it: <camera>/image_raw."),
    argument("image_transport", "",
             "raw: sensor_msgs/Image. compressed: sensor_msgs/CompressedImage (JPEG or PNG); cameras then names "
             "those topics.", ["", "raw", "compressed"]),
    argument("joint_states", "joint_states", "Topic of the robot's sensor_msgs/JointState."),
    argument("controller_topic", "joint_trajectory_controller/joint_trajectory",
             "Command topic of the joint trajectory controller. A robot with several controllers names them in its "
             "robot file; each then gets its part on <controller>/joint_trajectory."),
    argument("teleop_topic", "teleop_trajectory",
             "Topic on which an operator's device sends trajectory_msgs/JointTrajectory; it takes the arm from the "
             "policy as long as it comes."),
    argument("instruction_topic", "instruction", "Topic of the instruction (std_msgs/String)."),
    argument("use_sim_time", "false", "Message stamps follow /clock. Deadlines run on the steady clock all the same."),
    argument("control", "true", "Start watchdog and executor here. False on the computer that only runs the policy."),
    argument("policy", "true", "Start the policy here. False on the computer that only runs control."),
    argument("autostart", "true",
             "The nodes configure and activate themselves. False leaves that to a lifecycle manager (ros2 "
             "lifecycle set /watchdog configure)."),
    argument("respawn", "true",
             "Start a node again when it dies. Meanwhile the watchdog has the arm; if it is the watchdog that "
             "died, the last command ends at rest."),
    argument("respawn_delay", "1.0",
             "Seconds before the first respawn; doubled for each further one of a node that dies within a minute."),
    argument("respawn_delay_max", "30.0", "Longest such delay, in seconds."),
    argument("record", "",
             "Record everything that a decision depends on into this new folder, from before the first decision on "
             "(vla replay, vla report)."),
    argument("log_level", "info", "Level of the three nodes' logs.", ["debug", "info", "warn", "error", "fatal"]),
]  # fmt: skip


def nodes(context: LaunchContext) -> list[Action]:
    def value(name: str) -> str:
        return LaunchConfiguration(name).perform(context)

    flag = {name: truth(value(name), name) for name in ("use_sim_time", "control", "policy", "autostart", "respawn")}
    common = {"robot": value("robot"), "autostart": flag["autostart"], "use_sim_time": flag["use_sim_time"]}
    suffix = "image_raw/compressed" if value("image_transport") == "compressed" else "image_raw"
    # Several controllers are named in the robot file, and their topics follow from that.
    several = value("robot") and load_robot(value("robot")).controllers
    command = [] if several else [("joint_trajectory", value("controller_topic"))]
    joints = [("joint_states", value("joint_states"))]

    def start(name: str, given: dict, remappings: list[tuple[str, str]]) -> list[Action]:
        def make() -> Node:
            return Node(
                package="vla_runtime",
                executable=f"{name}_node",
                name=name,
                namespace=value("namespace"),
                parameters=parameters(share("config", f"{name}.yaml"), value("params_file"), {**common, **given}),
                remappings=remappings,
                arguments=["--ros-args", "--log-level", value("log_level")],
                output="screen",
                emulate_tty=True,
            )

        first, longest = float(value("respawn_delay")), float(value("respawn_delay_max"))
        return respawned(make, Backoff(first, longest) if flag["respawn"] else None)

    actions: list[Action] = []
    if value("record"):
        actions.append(
            ExecuteProcess(cmd=[sys.executable, "-m", "vla_runtime.cli", "record", value("record")], output="screen")
        )
    if flag["control"]:
        # Whoever judges is there before whom it judges; no node waits for another, though: each says what it misses.
        actions += start("watchdog", {}, [*command, *joints, ("teleop_trajectory", value("teleop_topic"))])
        actions += start("executor", {}, [*command, *joints])
    if flag["policy"]:
        cameras = [(f"{name}/{suffix}", topic) for name, topic in pairs(value("cameras"), "cameras").items()]
        given = {"bundle": value("bundle"), "image_transport": value("image_transport")}
        actions += start("policy", given, [*cameras, *joints, ("instruction", value("instruction_topic"))])
    return actions


def generate_launch_description() -> LaunchDescription:
    # Inference threads that spin while they wait would take the cores that control needs.
    passive = SetEnvironmentVariable("OMP_WAIT_POLICY", "passive")
    return LaunchDescription([*ARGUMENTS, passive, OpaqueFunction(function=nodes)])
