"""The errors that a command line shows without a traceback."""


class UserError(Exception):
    """Something that the user can mend; its text names the thing, the value and what to do. Exit code 1."""


class UsageError(UserError):
    """An option's value that cannot be meant, found out after the command line was read. Exit code 2."""
