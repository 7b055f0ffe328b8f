"""What columns and properties are usually called, for formats that leave the names to people."""

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.errors import UserError
from jobs.replay.fixes import Mapped

__all__ = ["LATS", "LONS", "NO_UNIT", "TIMES", "USERS", "Columns", "find_columns", "first_of"]

USERS = ("user", "user_id", "userid", "uid", "device", "device_id", "deviceid", "id")
TIMES = ("t", "time", "timestamp", "datetime", "date_time", "t_ms")
LATS = ("lat", "latitude")
LONS = ("lon", "lng", "long", "longitude")
"""In the order in which they are looked for; capitals do not matter."""

NO_UNIT = "The times of a table are numbers: say with --time-unit whether they are s, ms or us since 1970."


@dataclass(frozen=True)
class Columns:
    """Names of a table's columns; `user` is None where no column says who, `lat` and `lon` where its places are no columns of numbers."""

    user: str | None
    time: str
    lat: str | None
    lon: str | None


def first_of(wanted: Sequence[str], present: Sequence[str]) -> str | None:
    """Return the name that is looked for first, as the table spells it, or None."""
    spelled = {_plain(name): name for name in reversed(present)}
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
        If one that is needed is not there, or could be either of two.
    """
    found: dict[str, str | None] = {"lat": None, "lon": None}
    for part, usual in {"user": USERS, "time": TIMES, **({"lat": LATS, "lon": LONS} if places else {})}.items():
        named: str | None = getattr(mapped, part)
        name = found[part] = named or first_of(usual, present)
        if named is not None and named not in present:
            raise UserError(f"The table has no column `{named}`: say with --map {part}=NAME which one it is.")
        if name is None and part != "user":
            raise UserError(f"The table does not say which column holds the {part}: say so with --map {part}=NAME.")
        alike = 0 if name is None else present.count(name) if named else [_plain(other) for other in present].count(_plain(name))
        if alike > 1:
            raise UserError(f"Two columns of the table could hold the {part}: give them different names, or choose with --map {part}=NAME.")
    return Columns(found["user"], str(found["time"]), found["lat"], found["lon"])


def _plain(name: str) -> str:
    return name.strip().lower()
