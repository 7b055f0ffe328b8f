"""What readers yield: fixes in columns, with what could not be read of them and why."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from enum import StrEnum

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["BATCH", "SCHEMA", "Batch", "DamagedError", "Mapped", "ReadOptions", "Reason", "batch_of"]

BATCH = 65_536
"""Fixes of one batch, at most about so many."""

SCHEMA = pa.schema(
    [
        pa.field("user", pa.string(), nullable=False),
        pa.field("t_ms", pa.int64(), nullable=False),
        pa.field("lat", pa.float64()),
        pa.field("lon", pa.float64()),
        pa.field("index", pa.int64(), nullable=False),
    ]
)
"""Who, when (milliseconds since 1970), where (degrees as the file says them, in or out of range; null where it names no usable place),
and the place in the file: a line from 1, or the number of the item from 1."""


class Reason(StrEnum):
    """Why an item of a file is no fix. Names are those of `streaming.records.Kind` where the same rule is meant."""

    MALFORMED = "malformed"
    MISSING_FIELD = "missing_field"
    WRONG_TYPE = "wrong_type"
    USER_TOO_LONG = "user_too_long"
    TIME_ZONE_MISSING = "time_zone_missing"
    BEFORE_ARCHIVE = "before_archive"
    FUTURE = "future"
    WEEK_ROLLOVER = "week_rollover"
    DAMAGED = "damaged"
    UNSUPPORTED = "unsupported_shape"


class DamagedError(ValueError):
    """A file cannot be read any further; what came before it stands. The message says how, and never quotes the file."""


@dataclass(frozen=True)
class Batch:
    """A piece of a file.

    Attributes
    ----------
    fixes : RecordBatch of `SCHEMA`
        What was read, in the order of the file.
    refused : sequence of (int, Reason)
        Place in the file, and why nothing can be made of the item there. An item whose user and time are known is never refused for its
        position: it is a fix without a place, since that its user was there at that time counts.
    other : int
        Items that are no positions by their nature and are left out: headers, battery reports, satellite lists.
    """

    fixes: pa.RecordBatch
    refused: Sequence[tuple[int, Reason]] = ()
    other: int = 0


@dataclass(frozen=True)
class Mapped:
    """Which columns or properties of a table hold what, for formats that do not say so themselves; None: found by its usual names.

    `time_unit` is `s`, `ms`, `us` or `iso`, and never guessed from numbers; None: `iso` for text, and a problem for numbers.
    """

    user: str | None = None
    time: str | None = None
    lat: str | None = None
    lon: str | None = None
    time_unit: str | None = None


@dataclass(frozen=True)
class ReadOptions:
    """What a person says about files beyond what they say themselves.

    Attributes
    ----------
    zone : tzinfo or None
        Zone of times that have none; without it they are refused (`TIME_ZONE_MISSING`).
    start_ms : int or None
        Moment to which the times of a simulation are relative (SUMO).
    mapped : Mapped
        Columns of tables.
    """

    zone: tzinfo | None = None
    start_ms: int | None = None
    mapped: Mapped = field(default_factory=Mapped)


def batch_of(
    user: str | Sequence[str] | pa.Array,
    t_ms: Sequence[int] | NDArray[np.int64],
    lat: Sequence[float | None] | NDArray[np.float64],
    lon: Sequence[float | None] | NDArray[np.float64],
    index: Sequence[int] | NDArray[np.int64],
    refused: Sequence[tuple[int, Reason]] = (),
    other: int = 0,
) -> Batch:
    """Make a batch of columns of equal length n; one text as user holds for all of them.

    A coordinate that is None or not finite makes both of its fix null: half a place is none.
    """
    count = len(t_ms)
    users = pa.repeat(pa.scalar(user, pa.string()), count) if isinstance(user, str) else pa.array(user, pa.string())
    places = [np.array(values, np.float64) for values in (lat, lon)]
    no_place = ~(np.isfinite(places[0]) & np.isfinite(places[1]))
    columns = [users, pa.array(t_ms, pa.int64()), *(pa.array(values, mask=no_place) for values in places), pa.array(index, pa.int64())]
    return Batch(pa.record_batch(columns, schema=SCHEMA), refused, other)
