"""Items that a reader finds one after the other -> batches."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, NamedTuple

from jobs.replay.fixes import BATCH, Batch, DamagedError, Reason, batch_of

__all__ = ["OTHER", "Fix", "Item", "Refused", "collect", "iso_ms", "number"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
MAX_ABS = 1e300


class Fix(NamedTuple):
    """Who, when (milliseconds since 1970), where (degrees, or None), and the place in the file."""

    user: str
    t_ms: int
    lat: float | None
    lon: float | None
    at: int


class Refused(NamedTuple):
    """Where in the file nothing can be made of an item, and why."""

    at: int
    reason: Reason


OTHER = None
"""An item that is no position by its nature."""

Item = Fix | Refused | None


def collect(items: Iterator[Item]) -> Iterator[Batch]:
    """Yield batches of items; what came before damage is yielded first.

    Raises
    ------
    DamagedError
        If `items` does.
    """
    damage: DamagedError | None = None
    while True:
        fixes: list[Fix] = []
        refused: list[Refused] = []
        other, count = 0, 0
        try:
            for item in items:
                if type(item) is Fix:
                    fixes.append(item)
                elif item is OTHER:
                    other += 1
                elif type(item) is Refused:
                    refused.append(item)
                count += 1
                if count == BATCH:
                    break
        except DamagedError as error:
            damage = error
        if count:
            users, t_ms, lat, lon, index = zip(*fixes, strict=True) if fixes else ((), (), (), (), ())
            yield batch_of(users, t_ms, lat, lon, index, refused, other)
        if damage is not None:
            raise damage
        if count < BATCH:
            return


def iso_ms(text: Any, zone: tzinfo | None = None) -> int | Reason:
    """Return an ISO 8601 text as milliseconds since 1970, rounded down, or why it is none."""
    if text is None or text == "":
        return Reason.MISSING_FIELD
    if not isinstance(text, str):
        return Reason.WRONG_TYPE
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            if zone is None:
                return Reason.TIME_ZONE_MISSING
            moment = moment.replace(tzinfo=zone)
        return (moment - EPOCH) // MILLISECOND
    except (ValueError, OverflowError):
        return Reason.WRONG_TYPE


def number(value: Any) -> float | None:
    """Return a value of a document if it is a finite number, and not a text or a truth value, else None."""
    return float(value) if type(value) in (int, float) and abs(value) < MAX_ABS else None
