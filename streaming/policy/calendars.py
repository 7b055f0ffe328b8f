"""Weekly calendars in local wall time, to the minute."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.metadata import version
from zoneinfo import ZoneInfo, available_timezones, reset_tzpath

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "DAYS",
    "DAY_MINUTES",
    "TIME_ZONES_VERSION",
    "WEEK_MINUTES",
    "Week",
    "is_time_zone",
    "local_time",
    "minute_of_week",
    "minute_words",
    "week_mask",
]

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MINUTES = 24 * 60
WEEK_MINUTES = 7 * DAY_MINUTES

# Rules of time zones decide what is released: they come from the package tzdata, in its pinned version, and never from the machine.
reset_tzpath(())

TIME_ZONES_VERSION = version("tzdata")
"""Version of the IANA time zone database."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS, _LAST_MS = -62_000_000_000_000, 253_000_000_000_000
"""Within the years 6 and 9987, so that no offset leaves the range of `datetime`."""

_NO_ZONES = {"localtime", "posixrules", "Factory"}
"""What differs from machine to machine, or is no zone."""


@lru_cache(maxsize=1)
def _time_zones() -> frozenset[str]:
    return frozenset(available_timezones() - _NO_ZONES)


def is_time_zone(name: str) -> bool:
    """Return whether a name is in the IANA time zone database."""
    return name in _time_zones()


def local_time(zone: str, t_ms: int) -> datetime:
    """Return the wall time of an instant; instants beyond the years 6 and 9987 count as these."""
    return (_EPOCH + timedelta(milliseconds=min(max(t_ms, _FIRST_MS), _LAST_MS))).astimezone(ZoneInfo(zone))


@lru_cache(maxsize=4096)
def minute_of_week(zone: str, t_ms: int) -> int:
    """Return the minute since Monday 00:00 that a wall clock in a time zone shows at an instant.

    Every instant has exactly one wall time, so that nothing is undefined when clocks change: an hour that is skipped never comes, and
    one that comes twice counts as what it shows both times.

    Parameters
    ----------
    zone : str
        Name in the IANA time zone database.
    t_ms : int
        Unix time in milliseconds.
    """
    wall = local_time(zone, t_ms)
    return wall.weekday() * DAY_MINUTES + wall.hour * 60 + wall.minute


def minute_words(minute: int) -> str:
    """Return a minute of the week as text: ``mon 08:00``."""
    day, rest = divmod(minute, DAY_MINUTES)
    return f"{DAYS[day]} {rest // 60:02}:{rest % 60:02}"


def week_mask(intervals: Iterable[tuple[Iterable[str], int, int]]) -> NDArray[np.bool_]:
    """Return the minutes of the week that a calendar holds.

    Parameters
    ----------
    intervals : iterable of (days, start, end)
        Minutes of the day, start included and end excluded; from `start` on one of `days` to `end` on that day, or on the next one if
        `end` is not above `start`.

    Returns
    -------
    ndarray of bool with shape (WEEK_MINUTES,)
    """
    mask = np.zeros(WEEK_MINUTES, np.bool_)
    for days, start, end in intervals:
        length = end - start if end > start else end + DAY_MINUTES - start
        for day in days:
            mask[(DAYS.index(day) * DAY_MINUTES + start + np.arange(length)) % WEEK_MINUTES] = True
    return mask


class Week:
    """All calendars of a policy together.

    Parameters
    ----------
    calendars : mapping of str to ndarray of bool with shape (WEEK_MINUTES,)

    Attributes
    ----------
    sets : tuple of frozenset of str
        The different sets of calendars that hold at some minute.
    set_of_minute : ndarray with shape (WEEK_MINUTES,)
        Number in `sets` of each minute of the week.
    """

    def __init__(self, calendars: Mapping[str, NDArray[np.bool_]]) -> None:
        self._masks = dict(sorted(calendars.items()))
        table = np.array([*self._masks.values()], np.bool_).reshape(len(self._masks), WEEK_MINUTES)
        starts = np.flatnonzero(np.concatenate([[True], (table[:, 1:] != table[:, :-1]).any(axis=0)]))
        known: dict[frozenset[str], int] = {}
        numbers = [
            known.setdefault(frozenset(name for name, holds in zip(self._masks, column, strict=True) if holds), len(known))
            for column in table[:, starts].T.tolist()
        ]
        self.sets = tuple(known)
        self.set_of_minute: NDArray[np.intp] = np.repeat(np.array(numbers, np.intp), np.diff(starts, append=WEEK_MINUTES))

    def overlap(self, one: str, other: str) -> str | None:
        """Return the first minute of the week at which two calendars hold, as text ("mon 08:00"), or None."""
        both = np.flatnonzero(self._masks[one] & self._masks[other])
        return minute_words(int(both[0])) if len(both) else None
