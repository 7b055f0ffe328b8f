"""GPX 1.0 and 1.1: points of tracks are fixes.

Not with gpxpy, which holds the whole file (measured: 2.3 kB of memory a point) and reads 24,000 points/s where this reads 100,000; it is
the oracle of the tests.
"""

from collections.abc import Iterator

from jobs.replay.files import InputFile
from jobs.replay.fixes import Batch, ReadOptions, Reason
from jobs.replay.readers.collect import OTHER, Fix, Item, Refused, collect, iso_ms
from jobs.replay.readers.xml import elements, local_name, root_of

__all__ = ["read", "recognises"]


def recognises(file: InputFile, head: bytes) -> bool:
    """Tell whether the outermost element is `gpx`."""
    return root_of(head) == "gpx"


def read(file: InputFile, options: ReadOptions) -> Iterator[Batch]:
    """Read the points of tracks; the index is the point's number.

    Waypoints and points of planned routes say where something is or shall be, not where somebody was: they count as `other`.
    """
    return collect(_points(file, options))


def _points(file: InputFile, options: ReadOptions) -> Iterator[Item]:
    number = 0
    for _, point in elements(file, ("trkpt", "wpt", "rtept")):
        if local_name(point) != "trkpt":
            yield OTHER
            continue
        number += 1
        when = iso_ms((point.findtext("{*}time") or "").strip(), options.zone)
        if isinstance(when, Reason):
            yield Refused(number, when)
        else:
            yield Fix(file.user, when, _degrees(point.get("lat")), _degrees(point.get("lon")), number)


def _degrees(text: str | None) -> float | None:
    try:
        return None if text is None or "_" in text else float(text)
    except ValueError:
        return None
