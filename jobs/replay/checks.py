"""Step after reading: fixes whose user or time cannot be right are refused, since in a replay the times of fixes move the clock."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from jobs.replay.fixes import Batch, Reason

__all__ = ["Checks"]

WEEKS_1024_MS = 1024 * 7 * 86_400_000
"""GPS counts weeks in ten bits: a receiver that lost count is exactly so far behind."""


@dataclass(frozen=True)
class Checks:
    """What users and times have to be.

    Parameters
    ----------
    start_ms, end_ms : int
        First and last plausible time, milliseconds since 1970: when the devices began to send, and now.
    max_user_bytes : int
        Longest name of a user in UTF-8.
    rolled_over : collection of str
        Users whose receivers are known to be 1024 weeks behind: all their times are moved by as much. It is never guessed.
    """

    start_ms: int
    end_ms: int
    max_user_bytes: int
    rolled_over: Collection[str] = ()

    def apply(self, batch: Batch) -> tuple[Batch, int]:
        """Return the batch without fixes that are refused, and how many times were moved.

        A time before the start that would be plausible 1024 weeks later is refused as `WEEK_ROLLOVER`.
        """
        fixes, moved = batch.fixes, 0
        if self.rolled_over:
            behind = pc.is_in(fixes["user"], pa.array(sorted(self.rolled_over), pa.string())).to_numpy(zero_copy_only=False)
            moved = int(behind.sum())
            times = pa.array(fixes["t_ms"].to_numpy() + behind * WEEKS_1024_MS)
            fixes = fixes.set_column(fixes.schema.get_field_index("t_ms"), fixes.schema.field("t_ms"), times)
        t_ms, size = fixes["t_ms"].to_numpy(), pc.binary_length(fixes["user"]).to_numpy(zero_copy_only=False)
        reasons: dict[Reason, NDArray[np.bool_]] = {
            Reason.MISSING_FIELD: size == 0,
            Reason.USER_TOO_LONG: size > self.max_user_bytes,
            Reason.WEEK_ROLLOVER: (t_ms < self.start_ms) & (t_ms >= self.start_ms - WEEKS_1024_MS) & (t_ms <= self.end_ms - WEEKS_1024_MS),
            Reason.BEFORE_ARCHIVE: t_ms < self.start_ms,
            Reason.FUTURE: t_ms > self.end_ms,
        }
        bad = np.logical_or.reduce(list(reasons.values()))
        if not bad.any():
            return Batch(fixes, batch.refused, batch.other), moved
        index = fixes["index"].to_numpy()
        first = np.select(list(reasons.values()), list(range(len(reasons))), -1)
        names = list(reasons)
        refused = [(int(index[i]), names[first[i]]) for i in np.flatnonzero(bad)]
        return Batch(fixes.filter(pa.array(~bad)), [*batch.refused, *refused], batch.other), moved
