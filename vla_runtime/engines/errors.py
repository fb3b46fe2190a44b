"""What can go wrong in an engine. Every text names the stage, the tensor, the value, and what to do."""

from vla_runtime.errors import UsageError, UserError


class EngineError(UserError):
    """Base of everything that an engine raises on purpose."""


class UnknownEngineError(EngineError, UsageError):
    """No engine has this name."""


class EngineUnavailableError(EngineError):
    """This engine cannot run here: a package, a driver or a device is missing."""


class EngineInputError(EngineError):
    """The tensors given do not fit the stage: a name, a shape or a dtype differs."""


class EngineOutputError(EngineError):
    """The stage answered with something that may not be used: not finite, or not of the declared shape."""


class EngineMemoryError(EngineError):
    """The device ran out of memory."""


class EngineDeviceLostError(EngineError):
    """The device is gone (or in an error state from which only a new process recovers)."""


class EngineStaleError(EngineError):
    """A built engine belongs to another version, device or model file than the one it is asked to serve."""
