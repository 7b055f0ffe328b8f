"""What columns and properties are usually called, for formats that leave the names to people."""

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.errors import UserError
from jobs.replay.fixes import Mapped

__all__ = ["LATS", "LONS", "TIMES", "USERS", "Columns", "find_columns", "first_of"]

USERS = ("user", "user_id", "userid", "uid", "device", "device_id", "deviceid", "id")
TIMES = ("t", "time", "timestamp", "datetime", "date_time", "t_ms")
LATS = ("lat", "latitude")
LONS = ("lon", "lng", "long", "longitude")
"""In the order in which they are looked for; capitals do not matter."""


@dataclass(frozen=True)
class Columns:
    """Names of a table's columns; `user` is None where no column says who."""

    user: str | None
    time: str
    lat: str
    lon: str


def first_of(wanted: Sequence[str], present: Sequence[str]) -> str | None:
    """Return the name that is looked for first, as the table spells it, or None."""
    spelled = {name.strip().lower(): name for name in reversed(present)}
    return next((spelled[name] for name in wanted if name in spelled), None)


def find_columns(present: Sequence[str], mapped: Mapped, *, places: bool = True) -> Columns:
    """Say which columns hold what: those that a person named, else those with a usual name.

    Parameters
    ----------
    present : sequence of str
        Names of the table's columns.
    mapped : Mapped
        What a person said.
    places : bool
        Whether latitude and longitude are columns.

    Raises
    ------
    UserError
        If one that is needed is not there.
    """
    found: dict[str, str | None] = {}
    for part, usual in {"user": USERS, "time": TIMES, "lat": LATS, "lon": LONS}.items():
        named = getattr(mapped, part)
        if named is not None and named not in present:
            raise UserError(f"The table has no column `{named}`: say with --map {part}=NAME which one it is.")
        found[part] = named or first_of(usual, present)
        if found[part] is None and (part == "time" or (places and part != "user")):
            raise UserError(f"The table does not say which column holds the {part}: say so with --map {part}=NAME.")
    return Columns(found["user"], str(found["time"]), str(found["lat"]), str(found["lon"]))
