"""What earlier runs have already spent, so that a second look at the same ticks is charged on top of the first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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

    def at(self, tick: int, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the charge at a tick of each pseudonym, shape (n,); 0 where there is none."""
        of_tick = np.flatnonzero(self.tick == tick)
        wanted = np.array(names, NAME)
        if not len(of_tick) or not len(wanted):
            return np.zeros(len(wanted), np.int64)
        here = self.name[of_tick]
        place = np.minimum(np.searchsorted(here, wanted), len(here) - 1)
        return np.where(here[place] == wanted, self.charge_micro[of_tick[place]], 0)

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
        if not len(self) or not len(user):
            return
        names: dict[int, list[str]] = {}
        for tick in np.unique(self.tick[(self.tick > after) & (self.tick <= until)]).tolist():
            epoch = pseudonyms.epoch(tick)
            if epoch not in names:
                names[epoch] = pseudonyms.of(user, tick)
            ledger.record(tick, index, self.at(tick, names[epoch]))

    def ahead(self, pseudonyms: Pseudonyms, after: int, until: int, user: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return what users spent in the ticks `after` + 1 .. `until` together, shape (n,), in micro-epsilon."""
        total = np.zeros(len(user), np.int64)
        if len(self) and len(user):
            names: dict[int, list[str]] = {}
            for tick in np.unique(self.tick[(self.tick > after) & (self.tick <= until)]).tolist():
                epoch = pseudonyms.epoch(tick)
                if epoch not in names:
                    names[epoch] = pseudonyms.of(user, tick)
                total += self.at(tick, names[epoch])
        return total
