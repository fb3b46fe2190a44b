"""The error of this package: a ValueError for the library's users, shown without a traceback on the command line."""

from vla_runtime.errors import UserError


class BudgetError(UserError, ValueError):
    """A number, a name or a file that a budget cannot be made of; the text quotes it and says what to do."""


def require(condition: bool, message: str) -> None:
    """Raise BudgetError(message) unless ``condition`` holds."""
    if not condition:
        raise BudgetError(message)
