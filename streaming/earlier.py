"""What earlier runs have already spent, so that a second look at the same ticks is charged on top of the first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from streaming.ledger import Ledger
from streaming.pseudonyms import PSEUDONYM_BYTES, Pseudonyms

__all__ = ["EarlierSpends"]

NAME = f"S{2 * PSEUDONYM_BYTES}"


@dataclass(frozen=True)
class EarlierSpends:
    """Charges of earlier runs by pseudonym and tick, sorted by (pseudonym, tick), one entry each.

    Attributes
    ----------
    name, tick, charge_micro
        Columns of shape (n,): pseudonyms as ASCII bytes, ticks, and sums of charges in micro-epsilon.
    """

    name: NDArray[np.bytes_]
    tick: NDArray[np.int64]
    charge_micro: NDArray[np.int64]

    @classmethod
    def none(cls) -> "EarlierSpends":
        """Return the spends of a first run."""
        return cls(np.zeros(0, NAME), np.zeros(0, np.int64), np.zeros(0, np.int64))

    @classmethod
    def of(cls, charges: Iterable[tuple[str, int, int]]) -> "EarlierSpends":
        """Add up (pseudonym, tick, charge in micro-epsilon)."""
        totals: dict[tuple[str, int], int] = {}
        for name, tick, charge in charges:
            totals[name, tick] = totals.get((name, tick), 0) + charge
        entries = sorted(totals.items())
        return cls(
            np.array([name for (name, _), _ in entries], NAME),
            np.array([tick for (_, tick), _ in entries], np.int64),
            np.array([charge for _, charge in entries], np.int64),
        )

    def __len__(self) -> int:
        return len(self.tick)

    @cached_property
    def ticks(self) -> NDArray[np.int64]:
        """Return the ticks that have a charge, ascending."""
        return np.unique(self.tick)

    def between(self, pseudonyms: Pseudonyms, after: int, until: int, user: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return what users spent in the ticks `after` + 1 .. `until` together, shape (n,), in micro-epsilon.

        Parameters
        ----------
        pseudonyms
            The names under which the spends were published.
        after, until
            Ticks.
        user
            Ids of the users, shape (n,).
        """
        total = np.zeros(len(user), np.int64)
        for tick in self._first_of_epochs(pseudonyms, after, until, user):
            total += self._sums(pseudonyms.of(user, tick), after, until)
        return total

    def enter(
        self, ledger: Ledger, pseudonyms: Pseudonyms, after: int, until: int, index: NDArray[np.intp], user: NDArray[np.uint64]
    ) -> None:
        """Enter what users spent in the ticks `after` + 1 .. `until`, all inside the ledger's window.

        Parameters
        ----------
        ledger, pseudonyms
            The ledger, and the names under which the spends were published.
        after, until
            Ticks.
        index, user
            Rows in the ledger and ids of the users, shape (n,).
        """
        first_of_epochs = self._first_of_epochs(pseudonyms, after, until, user)
        names = {pseudonyms.epoch(tick): pseudonyms.of(user, tick) for tick in first_of_epochs}
        for tick in self._ticks_between(after, until) if names else []:
            ledger.record(tick, index, self._sums(names[pseudonyms.epoch(tick)], tick - 1, tick))

    def _ticks_between(self, after: int, until: int) -> list[int]:
        begin, end = np.searchsorted(self.ticks, (after, until), side="right")
        return self.ticks[begin:end].tolist()  # type: ignore[no-any-return]

    def _first_of_epochs(self, pseudonyms: Pseudonyms, after: int, until: int, user: NDArray[np.uint64]) -> list[int]:
        """Return for each epoch that has a charge between two ticks the first such tick, or nothing for nobody."""
        firsts: dict[int, int] = {}
        for tick in self._ticks_between(after, until) if len(user) else []:
            firsts.setdefault(pseudonyms.epoch(tick), tick)
        return list(firsts.values())

    @cached_property
    def _line(self) -> tuple[NDArray[np.bytes_], int, NDArray[np.int64], NDArray[np.int64]]:
        """Return the names, the ticks' span, each entry's place on one line of (name, tick), and the running sums of the charges."""
        names, rank = np.unique(self.name, return_inverse=True)
        span = int(np.ptp(self.ticks)) + 2
        return names, span, rank * span + (self.tick - self.ticks[0]), np.concatenate([[0], np.cumsum(self.charge_micro)])

    def _sums(self, names: Sequence[str], after: int, until: int) -> NDArray[np.int64]:
        """Return the charges of each name in the ticks `after` + 1 .. `until` together; 0 where there is none."""
        known, span, place, running = self._line
        wanted = np.array(names, NAME)
        rank = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        begin, end = (
            np.searchsorted(place, rank * span + min(max(tick - int(self.ticks[0]), -1), span - 2), side="right") for tick in (after, until)
        )
        return np.where(known[rank] == wanted, running[end] - running[begin], 0)
