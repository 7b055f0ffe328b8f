"""Event-time ticks: which tick a fix belongs to, when a tick closes, and which fixes are late for it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["TickGrid"]


@dataclass(frozen=True)
class TickGrid:
    """Tumbling ticks counted from 1970, closed by the log clock.

    ::

        tick k       [start_ms(k) ............ end) ..lateness.. closes_ms(k)
        log clock ------------------------------------------------^ closes; a record stamped here or later is late

    Parameters
    ----------
    length_ms, lateness_ms
        Length of a tick (> 0) and allowed lateness (>= 0), both in milliseconds.
    """

    length_ms: int
    lateness_ms: int

    def tick_of(self, t_ms: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the tick of each time."""
        return t_ms // self.length_ms

    def start_ms(self, tick: int) -> int:
        """Return the first millisecond of a tick."""
        return tick * self.length_ms

    def closes_ms(self, tick: int) -> int:
        """Return the log time at which a tick closes: its end plus the allowed lateness."""
        return (tick + 1) * self.length_ms + self.lateness_ms

    def first_open(self, log_clock_ms: int) -> int:
        """Return the lowest tick that is still open when every partition's log clock has reached `log_clock_ms`."""
        return (log_clock_ms - self.lateness_ms) // self.length_ms

    def is_late(self, t_ms: NDArray[np.int64], log_ms: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which fixes are late: their tick had closed at their own record's log timestamp.

        A function of each record alone, so that a replay of the same log agrees with the live run.
        """
        return (self.tick_of(t_ms) + 1) * self.length_ms + self.lateness_ms <= log_ms
