"""GeoJSON: points with a time, and lines with a time for each of their points; one document, or a feature a line."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from jobs.errors import UserError
from jobs.replay.files import InputFile
from jobs.replay.fixes import Batch, ReadOptions, Reason
from jobs.replay.readers.collect import OTHER, Fix, Item, Refused, collect, iso_ms, number
from jobs.replay.readers.columns import UNIT_MS, lines
from jobs.replay.readers.documents import items_of
from jobs.replay.readers.names import TIMES, USERS, first_of

__all__ = ["read", "recognises"]

FEATURE = re.compile(rb'"type"\s*:\s*"(Feature|FeatureCollection)"')
LINE_TIMES = ("coordTimes", "times")
SEPARATOR = b"\x1e"
PAIR = 2
MAX_MS = 2.0**62


def recognises(file: InputFile, head: bytes) -> bool:
    """Tell whether a document, or its first line, holds a feature with properties that can say a time."""
    timed = any(f'"{name}"'.encode() in head.lower() for name in (*TIMES, "coordtimes", "times"))
    return head.lstrip(b"\xef\xbb\xbf\x1e \t\r\n")[:1] == b"{" and FEATURE.search(head) is not None and timed


def read(file: InputFile, options: ReadOptions) -> Iterator[Batch]:
    """Read features; the index is the feature's number, or its line.

    Coordinates are longitude, latitude (RFC 7946), never the other way round. Points have their time in a property; lines in `coordTimes`
    or `times`, one for each point. Other shapes count as `other`. Times are ISO 8601 texts, or numbers in the unit that
    `options.mapped` names.

    Raises
    ------
    UserError
        If times are numbers and nobody said in which unit.
    """
    return collect(item for at, feature in _features(file) for item in _items(feature, at, file.user, options))


def _features(file: InputFile) -> Iterator[tuple[int, Any]]:
    """Yield features with their numbers."""
    head = file.head()
    first = head.lstrip(SEPARATOR).split(b"\n", 1)[0]
    try:
        by_line = type(document := orjson.loads(first)) is dict and document.get("type") == "Feature"
    except orjson.JSONDecodeError:
        by_line = False
    if not by_line:
        yield from enumerate(items_of(file, "features.item"), 1)
        return
    at = 0
    with file.open() as content:
        for block in lines(content):
            for line in block.removesuffix(b"\n").split(b"\n"):
                at += 1
                if line.strip(SEPARATOR + b" \t\r"):
                    try:
                        yield at, orjson.loads(line.lstrip(SEPARATOR))
                    except orjson.JSONDecodeError:
                        yield at, None


def _items(feature: Any, at: int, user: str, options: ReadOptions) -> Iterator[Item]:
    if type(feature) is not dict or type(feature.get("geometry")) is not dict:
        yield Refused(at, Reason.MALFORMED)
        return
    said, geometry = feature.get("properties"), feature["geometry"]
    properties = said if type(said) is dict else {}
    named = options.mapped.user or first_of(USERS, list(properties))
    who = properties.get(named) if named else user
    if type(who) not in (str, int) or who == "":
        yield Refused(at, Reason.MISSING_FIELD if who is None or who == "" else Reason.WRONG_TYPE)
        return
    kind, places = geometry.get("type"), geometry.get("coordinates")
    if kind == "Point":
        name = options.mapped.time or first_of(TIMES, list(properties))
        yield _fix(str(who), properties.get(name) if name else None, places, at, options)
    elif kind in ("LineString", "MultiLineString"):
        times = next((properties[name] for name in LINE_TIMES if name in properties), None)
        parts = [(places, times)] if kind == "LineString" else _pairs(places, times)
        for line, moments in parts:
            pairs = _pairs(line, moments)
            if not pairs:
                yield Refused(at, Reason.MISSING_FIELD if moments is None else Reason.MALFORMED)
            for place, moment in pairs:
                yield _fix(str(who), moment, place, at, options)
        if not parts:
            yield Refused(at, Reason.MISSING_FIELD if times is None else Reason.MALFORMED)
    else:
        yield OTHER


def _pairs(places: Any, times: Any) -> Sequence[tuple[Any, Any]]:
    """Return places with their times; nothing if there is not one for each."""
    whole = type(places) is list and type(times) is list and len(places) == len(times)
    return list(zip(places, times, strict=True)) if whole else []


def _fix(user: str, moment: Any, place: Any, at: int, options: ReadOptions) -> Item:
    when = _time(moment, options)
    if isinstance(when, Reason):
        return Refused(at, when)
    lon, lat = (number(place[0]), number(place[1])) if type(place) is list and len(place) >= PAIR else (None, None)
    return Fix(user, when, lat, lon, at)


def _time(moment: Any, options: ReadOptions) -> int | Reason:
    unit = options.mapped.time_unit
    if type(moment) not in (int, float):
        return iso_ms(moment, options.zone)
    if unit is None:
        raise UserError("The times of features are numbers: say with --time-unit whether they are s, ms or us since 1970.")
    if unit == "iso" or not abs(moment) < MAX_MS:
        return Reason.WRONG_TYPE
    return int(moment * UNIT_MS[unit] + 1e-6)
