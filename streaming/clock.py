"""The wall clock: the only module that may read it, so that no release can come to depend on it."""

import time

__all__ = ["now_ms"]


def now_ms() -> int:
    """Return the wall-clock time in milliseconds since 1970; for operators' records only, never for a release."""
    return time.time_ns() // 1_000_000
