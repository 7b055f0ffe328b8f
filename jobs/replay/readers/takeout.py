"""Google's location history in its four shapes: Records, semantic history, the phone's Timeline, and that of iOS.

========  ============================================================================================================================
Records   `locations`: each with E7 coordinates at `timestamp` or `timestampMs`
semantic  `timelineObjects`: a visited place at the visit's start and end, the ends of a movement, and points of its raw path
phone     `semanticSegments`: points of `timelinePath` at their times, a visited place at start and end, the ends of an activity; and
          the positions among `rawSignals`
iOS       a list of segments of the same kind, with "geo:" places and times of path points as minutes after the segment's start
========  ============================================================================================================================

What has no time of its own there (waypoints, other candidates for a place, Wi-Fi scans, activity records) counts as `other`.
"""

import re
from collections.abc import Iterator
from typing import Any

from jobs.replay.files import InputFile
from jobs.replay.fixes import Batch, ReadOptions, Reason
from jobs.replay.readers.collect import OTHER, Fix, Item, Refused, collect, iso_ms, number
from jobs.replay.readers.documents import items_of

__all__ = ["read", "recognises"]

RECORDS, SEMANTIC, PHONE, RAW, IOS = "locations", "timelineObjects", "semanticSegments", "rawSignals", "item"
PLACE = re.compile(r"(?:geo:)?\s*(-?\d{1,4}(?:\.\d{1,20})?)°?\s*,\s*(-?\d{1,4}(?:\.\d{1,20})?)°?\s*")
E7 = 1e7
MINUTE_MS = 60_000

Spot = tuple[float | None, float | None]


def recognises(file: InputFile, head: bytes) -> bool:
    """Tell whether a document begins as one of the four."""
    return bool(_shapes(head))


def read(file: InputFile, options: ReadOptions) -> Iterator[Batch]:
    """Read the fixes of one person; the index is the number of the item in its list."""
    return collect(_items(file))


def _shapes(head: bytes) -> list[str]:
    """Return the lists of the document that hold fixes."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start == b"[":
        return [IOS] if b'"geo:' in head and b'"startTime"' in head else []
    if start != b"{":
        return []
    if re.search(rb'^[^{]*\{\s*"locations"\s*:', head) and (b"E7" in head or b"timestamp" in head):
        return [RECORDS]
    if re.search(rb'^[^{]*\{\s*"timelineObjects"\s*:', head):
        return [SEMANTIC]
    return [PHONE, RAW] if re.search(rb'^[^{]*\{\s*"(semanticSegments|rawSignals|userLocationProfile)"\s*:', head) else []


def _items(file: InputFile) -> Iterator[Item]:
    for name in _shapes(file.head()):
        read_item = {RECORDS: _record, SEMANTIC: _timeline_object, PHONE: _segment, RAW: _signal, IOS: _segment}[name]
        for at, item in enumerate(items_of(file, name if name == IOS else f"{name}.item"), 1):
            if type(item) is dict:
                yield from read_item(item, file.user, at)
            else:
                yield Refused(at, Reason.MALFORMED)


def _record(item: dict[str, Any], user: str, at: int) -> Iterator[Item]:
    yield _fix(user, _time(item, "timestamp"), _e7(item, "latitudeE7", "longitudeE7"), at)


def _timeline_object(item: dict[str, Any], user: str, at: int) -> Iterator[Item]:
    visit, movement = item.get("placeVisit"), item.get("activitySegment")
    if type(visit) is dict:
        spot = _e7(_part(visit, "location"), "latitudeE7", "longitudeE7")
        for end in ("start", "end"):
            yield _fix(user, _time(_part(visit, "duration"), f"{end}Timestamp"), spot, at)
    elif type(movement) is dict:
        for end in ("start", "end"):
            spot = _e7(_part(movement, f"{end}Location"), "latitudeE7", "longitudeE7")
            yield _fix(user, _time(_part(movement, "duration"), f"{end}Timestamp"), spot, at)
        for point in _list(_part(movement, "simplifiedRawPath").get("points")):
            yield _fix(user, _time(point, "timestamp"), _e7(point, "latE7", "lngE7"), at)
        for _ in _list(_part(movement, "waypointPath").get("waypoints")):
            yield OTHER
    else:
        yield OTHER


def _segment(item: dict[str, Any], user: str, at: int) -> Iterator[Item]:
    start, end = _time(item, "startTime"), _time(item, "endTime")
    visit, activity, path = item.get("visit"), item.get("activity"), item.get("timelinePath")
    if type(visit) is dict:
        place = _part(visit, "topCandidate").get("placeLocation")
        spot = _spot(place.get("latLng") if type(place) is dict else place)
        yield _fix(user, start, spot, at)
        yield _fix(user, end, spot, at)
    elif type(activity) is dict:
        for name, when in (("start", start), ("end", end)):
            place = activity.get(name)
            yield _fix(user, when, _spot(place.get("latLng") if type(place) is dict else place), at)
    elif type(path) is list:
        for point in _list(path):
            minutes = point.get("durationMinutesOffsetFromStartTime")
            yield _fix(user, _time(point, "time") if minutes is None else _after(start, minutes), _spot(point.get("point")), at)
    else:
        yield OTHER


def _signal(item: dict[str, Any], user: str, at: int) -> Iterator[Item]:
    position = item.get("position")
    if type(position) is dict:
        yield _fix(user, _time(position, "timestamp"), _spot(position.get("LatLng")), at)
    else:
        yield OTHER


def _fix(user: str, when: int | Reason, spot: Spot, at: int) -> Item:
    return Refused(at, when) if isinstance(when, Reason) else Fix(user, when, *spot, at)


def _time(item: dict[str, Any], name: str) -> int | Reason:
    """Return a time that is given as ISO 8601, or in older files as a text of milliseconds."""
    old = item.get(f"{name}Ms")
    if item.get(name) is None and old is not None:
        return int(old) if re.fullmatch(r"-?\d{1,18}", str(old)) else Reason.WRONG_TYPE
    return iso_ms(item.get(name))


def _after(start: int | Reason, minutes: Any) -> int | Reason:
    if isinstance(start, Reason):
        return start
    found = re.fullmatch(r"\d{1,7}", str(minutes))
    return start + int(found[0]) * MINUTE_MS if found else Reason.WRONG_TYPE


def _e7(item: dict[str, Any], lat: str, lon: str) -> Spot:
    found = number(item.get(lat)), number(item.get(lon))
    return (None, None) if found[0] is None or found[1] is None else (found[0] / E7, found[1] / E7)


def _spot(text: Any) -> Spot:
    found = PLACE.fullmatch(text) if isinstance(text, str) else None
    return (float(found[1]), float(found[2])) if found else (None, None)


def _part(item: dict[str, Any], name: str) -> dict[str, Any]:
    part = item.get(name)
    return part if type(part) is dict else {}


def _list(value: Any) -> Iterator[dict[str, Any]]:
    return (item for item in (value if type(value) is list else []) if type(item) is dict)
