"""Which action space a bundle has."""

from vla_runtime.policy.action_space import ActionSpace
from vla_runtime.policy.bundle import Bundle


def choose_space(bundle: Bundle) -> ActionSpace:
    """Return the action space of ``bundle``; BundleError where its kinematics do not fit."""
    if bundle.policy.action.end_effectors:
        from vla_runtime.policy.end_effector import EndEffectorSpace  # imports scipy

        return EndEffectorSpace(bundle)
    return ActionSpace(bundle.policy)
