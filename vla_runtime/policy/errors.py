"""What can go wrong between a bundle on disk and an action. Texts name the thing, the value, and what to do."""

from vla_runtime.errors import UserError


class PolicyError(UserError):
    """Base of everything that the policy side raises on purpose."""


class BundleError(PolicyError):
    """A bundle that cannot be used as it is."""


class UnprovenEngineError(BundleError):
    """No passing parity record covers exactly these files with this engine."""


class ImageError(PolicyError):
    """An image that cannot be turned into RGB: unknown encoding, or fields that contradict each other."""


class ObservationError(PolicyError):
    """An input that does not belong to this policy: an unknown camera, a missing joint, a bad value."""


class InstructionError(PolicyError):
    """An instruction that the tokenizer cannot express in the bundle's number of tokens."""


class UnreachableError(PolicyError):
    """A plan of end effector poses that the arm cannot follow: the plan is refused whole, the policy is sound."""
