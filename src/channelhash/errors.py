"""The one error a user is meant to read: one line that says what, where and what to do."""


class InputError(Exception):
    """Something the user gave (a file, a row, a key, an option) cannot be used.

    The message is one line and names the place. The command line prints it and exits with status 2.
    """


class JobError(Exception):
    """A job that was set up correctly failed while it ran (a loss turned NaN, a disk filled up); exit status 1."""


class NoSpaceError(JobError):
    """A disk or a quota is full: what was written before is kept, and the job goes on when there is room."""
