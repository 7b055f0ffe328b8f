"""What earlier runs have already spent, so that a second look at the same ticks is charged on top of the first."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from streaming.charges import CHARGE, distinct_charges
from streaming.ledger import Ledger

__all__ = ["EarlierSpends"]


@dataclass(frozen=True)
class EarlierSpends:
    """Charges of earlier runs, sorted by (user, tick).

    Attributes
    ----------
    charges
        `CHARGE` of shape (n,).
    """

    charges: NDArray[np.void]

    @classmethod
    def none(cls) -> "EarlierSpends":
        """Return the spends of a first run."""
        return cls(np.zeros(0, CHARGE))

    @classmethod
    def of(cls, parts: Iterable[NDArray[np.void]]) -> "EarlierSpends":
        """Add up charges; one that is repeated counts once."""
        return cls(distinct_charges(parts))

    def __len__(self) -> int:
        return len(self.charges)

    def between(self, after: int, until: int, user: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return what users of shape (n,) spent in the ticks `after` + 1 .. `until` together, shape (n,), in micro-epsilon."""
        if not self._ticks_between(after, until):
            return np.zeros(len(user), np.int64)
        known, span, place, running = self._line
        first = int(self._ticks[0])
        rank = np.minimum(np.searchsorted(known, user), len(known) - 1)
        begin, end = (np.searchsorted(place, rank * span + min(max(tick - first, -1), span - 2), side="right") for tick in (after, until))
        return np.asarray(np.where(known[rank] == user, running[end] - running[begin], 0), np.int64)

    def enter(self, ledger: Ledger, after: int, until: int, index: NDArray[np.intp], user: NDArray[np.uint64]) -> None:
        """Enter what users spent in the ticks `after` + 1 .. `until`, all inside the ledger's window.

        Parameters
        ----------
        ledger
            The ledger.
        after, until
            Ticks.
        index, user
            Rows in the ledger and ids of the users, shape (n,).
        """
        for tick in self._ticks_between(after, until) if len(user) else []:
            ledger.record(tick, index, self.between(tick - 1, tick, user))

    @cached_property
    def _ticks(self) -> NDArray[np.int64]:
        return np.unique(self.charges["tick"].astype(np.int64))

    def _ticks_between(self, after: int, until: int) -> list[int]:
        begin, end = np.searchsorted(self._ticks, (after, until), side="right")
        return self._ticks[begin:end].tolist()  # type: ignore[no-any-return]

    @cached_property
    def _line(self) -> tuple[NDArray[np.uint64], int, NDArray[np.int64], NDArray[np.int64]]:
        """Return the users, the ticks' span, each charge's place on one line of (user, tick), and the running sums of the charges."""
        known, rank = np.unique(self.charges["user"], return_inverse=True)
        span = int(np.ptp(self._ticks)) + 2
        place = rank * span + (self.charges["tick"] - self._ticks[0])
        return known, span, place, np.concatenate([[0], np.cumsum(self.charges["charge_micro"])])
