"""Floating car data of SUMO (`fcd-export` with geographic positions): simulated vehicles and persons, at times counted from a start."""

from collections.abc import Iterator
from math import isfinite

from jobs.errors import UserError
from jobs.replay.files import InputFile
from jobs.replay.fixes import Batch, DamagedError, ReadOptions, Reason
from jobs.replay.readers.collect import OTHER, Fix, Item, Refused, collect
from jobs.replay.readers.xml import elements, local_name, root_of

__all__ = ["read", "recognises"]

MAX_LON, MAX_LAT = 180.0, 90.0
MAX_S = 1e12


def recognises(file: InputFile, head: bytes) -> bool:
    """Tell whether the outermost element is `fcd-export`."""
    return root_of(head) == "fcd-export"


def read(file: InputFile, options: ReadOptions) -> Iterator[Batch]:
    """Read vehicles and persons, who are called by their ids; the index is the fix's number.

    Containers are goods, not somebody, and count as `other`. Whether x and y are degrees is judged by the first that has both.

    Raises
    ------
    UserError
        If nobody said when the simulation starts.
    DamagedError
        If positions are no degrees.
    """
    if options.start_ms is None:
        raise UserError("The times of a simulation are relative: say with --start when it begins, for instance 2026-01-05T08:00Z.")
    return collect(_fixes(file, options.start_ms))


def _fixes(file: InputFile, start_ms: int) -> Iterator[Item]:
    number, checked = 0, False
    now: int | Reason = Reason.MISSING_FIELD
    for event, element in elements(file, ("timestep", "vehicle", "person", "container"), ("start", "end")):
        name = local_name(element)
        if name == "timestep":
            now = _moment(element.get("time"), start_ms) if event == "start" else Reason.MISSING_FIELD
        elif event == "end" and name == "container":
            yield OTHER
        elif event == "end":
            number += 1
            user, x, y = element.get("id"), _number(element.get("x")), _number(element.get("y"))
            if not checked and x is not None and y is not None:
                checked = True
                if abs(x) > MAX_LON or abs(y) > MAX_LAT:
                    raise DamagedError("its positions are no degrees: export it with --fcd-output.geo")
            if not user or isinstance(now, Reason):
                yield Refused(number, now if isinstance(now, Reason) else Reason.MISSING_FIELD)
            else:
                yield Fix(user, now, y, x, number)


def _moment(text: str | None, start_ms: int) -> int | Reason:
    """Return when a time step is, in milliseconds since 1970, rounded down."""
    if not text:
        return Reason.MISSING_FIELD
    seconds = _number(text)
    if seconds is None or abs(seconds) > MAX_S:
        return Reason.WRONG_TYPE
    # by way of microseconds, since 1.001 s are a little less than 1001 ms in binary
    return start_ms + round(seconds * 1e6) // 1000


def _number(text: str | None) -> float | None:
    try:
        found = None if text is None or "_" in text else float(text)
    except ValueError:
        return None
    return found if found is not None and isfinite(found) else None
