"""The demo: the simulated arm and the real nodes, with the demo policy. Needs no robot, no GPU, no display.

    ros2 launch vla_runtime demo.launch.py instruction:='pick up the blue cube'

`vla demo` does the same with a summary and a report at the end.
"""

from launch.action import Action
from launch.actions import IncludeLaunchDescription, OpaqueFunction
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from launch import LaunchContext, LaunchDescription
from vla_runtime.paths import share
from vla_runtime.toolchain.launching import argument

ARGUMENTS = [
    argument("bundle", str(share("bundles", "demo")), "Directory of the policy's bundle; the demo's by default."),
    argument("seed", "0", "Draws the scene: which cubes lie where."),
    argument("instruction", "", "What to do, as in 'pick up the red cube'; empty: drawn from the seed."),
    argument("distro", "jazzy",
             "Whose joint_trajectory_controller the simulated arm imitates.", ["humble", "jazzy", "kilted", "rolling"]),
    argument("params_file", "", "Your parameters, as for robot.launch.py."),
    argument("namespace", "", "Namespace of the arm and of the three nodes."),
    argument("record", "", "Record the run into this new folder."),
    argument("log_level", "info", "Level of the nodes' logs.", ["debug", "info", "warn", "error", "fatal"]),
]  # fmt: skip


def everything(context: LaunchContext) -> list[Action]:
    def value(name: str) -> str:
        return LaunchConfiguration(name).perform(context)

    robot = Node(
        package="vla_runtime",
        executable="sim_robot",
        name="sim_robot",
        namespace=value("namespace"),
        parameters=[
            {
                "seed": int(value("seed")),
                "instruction": value("instruction"),
                "distro": value("distro"),
                "realtime_priority": 40,  # a real controller does not wait for inference to free a core
            }
        ],
        output="screen",
        emulate_tty=True,
    )
    runtime = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(share("launch", "robot.launch.py"))),
        launch_arguments={
            "bundle": value("bundle"),
            "robot": "so101_sim",
            "params_file": value("params_file"),
            "namespace": value("namespace"),
            "controller_topic": "joint_trajectory",
            "record": value("record"),
            "log_level": value("log_level"),
        }.items(),
    )
    # The arm first: launch ends what it started last to first, and the stop trajectory needs a controller.
    return [robot, runtime]


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription([*ARGUMENTS, OpaqueFunction(function=everything)])
