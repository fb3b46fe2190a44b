"""The error of this package: a ValueError for the library's users, shown without a traceback on the command line."""

from vla_runtime.errors import UsageError, UserError


class BudgetError(UserError, ValueError):
    """A number, a name or a file that a budget cannot be made of; the text quotes it and says what to do."""


class BudgetUsageError(BudgetError, UsageError):
    """A number or a name that cannot be meant, whatever the files hold: wrong usage on the command line."""


def require(condition: bool, message: str) -> None:
    """Raise BudgetUsageError(message) unless ``condition`` holds."""
    if not condition:
        raise BudgetUsageError(message)
