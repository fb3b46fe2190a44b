"""A recorded run, live: the bag plays the cameras and the joint states, and the policy decides anew, on no arm.

    ros2 launch vla_runtime replay.launch.py bag:=/bags/run bundle:=/opt/bundles/pick robot:=so101

The commands go to replay/joint_trajectory, where no controller listens. For decisions that are equal bit for bit, and
for "what if", use `vla replay`, which needs no ROS.
"""

from launch.action import Action
from launch.actions import (
    EmitEvent,
    ExecuteProcess,
    IncludeLaunchDescription,
    LogInfo,
    OpaqueFunction,
    RegisterEventHandler,
    TimerAction,
)
from launch.event_handlers import OnProcessExit
from launch.events import Shutdown
from launch.events.process import ProcessExited
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration

from launch import LaunchContext, LaunchDescription
from vla_runtime.errors import UserError
from vla_runtime.paths import share
from vla_runtime.policy.bundle import load_bundle
from vla_runtime.toolchain.launching import argument, bag_storage, pairs, truth

ARGUMENTS = [
    argument("bag", None, "The rosbag2 folder to play."),
    argument("bundle", "", "Directory of the policy's bundle."),
    argument("robot", "", "The robot's limits: a YAML file, or one of config/robots."),
    argument("params_file", "", "Your parameters, as for robot.launch.py."),
    argument("cameras", "",
             "Topics of the bag for the cameras of the bundle: 'front=/camera/image_raw'. Without it: "
             "<camera>/image_raw."),
    argument("image_transport", "", "How the bag has its pictures.", ["", "raw", "compressed"]),
    argument("joint_states", "joint_states", "Topic of the bag's joint states."),
    argument("delay", "10.0", "Seconds until the bag begins: the policy loads meanwhile."),
    argument("rate", "1.0", "Speed of playing. Above what the policy can follow, answers are late."),
    argument("loop", "false", "Play the bag again and again."),
]  # fmt: skip


def everything(context: LaunchContext) -> list[Action]:
    def value(name: str) -> str:
        return LaunchConfiguration(name).perform(context)

    cameras = pairs(value("cameras"), "cameras")
    runtime = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(share("launch", "robot.launch.py"))),
        launch_arguments={
            **{
                name: value(name)
                for name in ("bundle", "robot", "params_file", "cameras", "image_transport", "joint_states")
            },
            "controller_topic": "replay/joint_trajectory",
            "use_sim_time": "true",
            "respawn": "false",
        }.items(),
    )
    # Only what goes in is played: played decisions of then would be taken for decisions of now.
    suffix = "image_raw/compressed" if value("image_transport") == "compressed" else "image_raw"
    seen = [cameras.get(camera, f"{camera}/{suffix}") for camera in camera_names(value("bundle"))]
    topics = ["/" + topic.lstrip("/") for topic in (value("joint_states"), "instruction", *seen)]
    loop = ["--loop"] if truth(value("loop"), "loop") else []
    command = [
        *("ros2", "bag", "play", value("bag"), *bag_storage(value("bag"))),
        *("--clock", "100", "--rate", value("rate"), *loop, "--topics", *topics),
    ]
    play = ExecuteProcess(cmd=command, output="screen")
    over = RegisterEventHandler(OnProcessExit(target_action=play, on_exit=played))
    return [runtime, over, TimerAction(period=float(value("delay")), actions=[play])]


def played(event: ProcessExited, context: LaunchContext) -> list[Action]:
    """End the launch with the bag. Raises UserError, which ends it too, where `ros2 bag play` could not play it."""
    if context.is_shutdown:
        return []
    if event.returncode != 0:
        raise UserError(
            f"`ros2 bag play` ended with exit status {event.returncode}: what it said is above (is rosbag2 installed, "
            "with the storage plugin of this bag?)"
        )
    return [LogInfo(msg="the bag is over"), EmitEvent(event=Shutdown(reason="the bag is over"))]


def camera_names(bundle: str) -> list[str]:
    """Return the cameras that a bundle names. Raises UserError."""
    if not bundle:
        raise UserError("bundle is empty: give the directory of the policy that shall decide")
    return [camera.name for camera in load_bundle(bundle).policy.cameras]


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription([*ARGUMENTS, OpaqueFunction(function=everything)])
