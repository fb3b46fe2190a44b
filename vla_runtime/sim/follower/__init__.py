"""A trajectory follower that keeps the rules of joint_trajectory_controller's topic interface, without ROS.

A message which the controller of a distribution would drop is dropped here with the same text; one that would make it
step, replay or run away does so here. Rules only, read in ros2_controllers (humble, jazzy, kilted, master of 2026-08);
left out: the action interface, speed scaling, `allow_integration_in_goal_trajectories`, `decelerate_on_cancel` and the
effort and PID paths, none of which a stream of positions and velocities on a position interface meets.
"""

from vla_runtime.sim.follower.follower import Figures, Follower
from vla_runtime.sim.follower.message import Point, TrajectoryMessage
from vla_runtime.sim.follower.rules import DISTROS, FollowerSettings, Rejection

__all__ = ["DISTROS", "Figures", "Follower", "FollowerSettings", "Point", "Rejection", "TrajectoryMessage"]
