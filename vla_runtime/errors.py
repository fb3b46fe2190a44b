"""The one error that a command line shows without a traceback."""


class UserError(Exception):
    """Something that the user can mend; its text names the thing, the value and what to do. Exit code 1."""
