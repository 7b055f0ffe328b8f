"""Before and around every job: the errors that the person at the keyboard can repair."""

__all__ = ["UserError"]


class UserError(RuntimeError):
    """One sentence that tells the user what to do; the command line prints it without a trace."""
