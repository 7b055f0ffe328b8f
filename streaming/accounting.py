"""Every input record's outcome, as far as it does not depend on the product: what was rejected or late, and the balance of a tick."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streaming.pseudonyms import Pseudonyms
from streaming.records import FIRST_REASON, Kind
from streaming.release import Balance, Outputs, late_lines, rejected_lines
from streaming.settings import Product, Settings
from streaming.ticks import TickGrid

__all__ = ["OperatorLines", "balance_of"]


def balance_of(
    product: Product, tick: int, shard: int, rows: NDArray[np.void], *, used: int, merged: int, duplicate: int, withheld: int, unclosed: int
) -> Balance:
    """Return the balance of all records of one tick and shard; the fixes among them are split by the caller."""
    kind = rows["kind"]
    reasons, counts = np.unique(kind[kind >= FIRST_REASON], return_counts=True)
    return Balance(
        product=product,
        tick=tick,
        shard=shard,
        records=len(rows),
        used=used,
        merged=merged,
        duplicate=duplicate,
        late=int((kind == Kind.LATE).sum()),
        rejected=int(counts.sum()),
        withheld=withheld,
        control=int(((kind == Kind.HEARTBEAT) | (kind == Kind.ENROLMENT)).sum()),
        unclosed=unclosed,
        reasons={Kind(reason).name.lower(): count for reason, count in zip(reasons.tolist(), counts.tolist(), strict=True)},
    )


@dataclass(frozen=True)
class OperatorLines:
    """Lines of the topics `rejected` and `late`, once for all products of a job.

    Parameters
    ----------
    settings, grid, pseudonyms
        Names of the topics; the ticks; and under which names late users appear.
    """

    settings: Settings
    grid: TickGrid
    pseudonyms: Pseudonyms

    def of(self, rows: NDArray[np.void]) -> Outputs:
        """Return the lines of the records accounted for at one tick and shard."""
        out: Outputs = {}
        rejected = rows[rows["kind"] >= FIRST_REASON]
        late = np.sort(rows[rows["kind"] == Kind.LATE], order=["source", "partition", "offset"])
        if len(rejected):
            out[self.settings.topics.rejected] = list(rejected_lines(rejected, [source.topic for source in self.settings.source]))
        if len(late):
            ticks = self.grid.tick_of(late["t_ms"])
            late_ms = late["log_ms"] - (ticks + 1) * self.grid.length_ms - self.grid.lateness_ms
            names = self.pseudonyms.of(np.ascontiguousarray(late["user"]), ticks)
            out[self.settings.topics.late] = list(late_lines(late, names, ticks, late_ms))
        return out
