"""The errors that a command line shows without a traceback, and how numbers stand in them."""


class UserError(Exception):
    """Something that the user can mend; its text names the thing, the value and what to do. Exit code 1."""


class UsageError(UserError):
    """An option's value that cannot be meant, found out after the command line was read. Exit code 2."""


def brief(value: float) -> str:
    """Return a number that came from outside as a message has it: six digits, also of 1e308, which has 309."""
    return f"{value:.6g}"
