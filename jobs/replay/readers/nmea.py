"""NMEA 0183: RMC sentences of whatever talker are fixes; they alone say date, time and place together.

pynmea2 parses about 200,000 sentences a second on one core (94,000 with their places); only RMC sentences get there, since most are not.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache

import pynmea2

from jobs.replay.files import InputFile
from jobs.replay.fixes import Batch, DamagedError, ReadOptions, Reason
from jobs.replay.readers.collect import OTHER, Fix, Item, Refused, collect
from jobs.replay.readers.columns import lines

__all__ = ["read", "recognises"]

SENTENCE = re.compile(rb"[$!][A-Z][A-Z0-9]{2,9},[\x20\x22\x23\x25-\x7e]*")
RMC = re.compile(rb"\$[A-OQ-Z][A-Z]RMC,")
PLACE = re.compile(rb"\$[A-OQ-Z][A-Z](GGA|GLL|GNS),")
"""A talker that begins with P is a maker of devices, whose sentences have a form of their own."""

BEGIN = re.compile(rb"(^|[^\t\x20-\x7e])\$[A-OQ-Z][A-Z](RMC|GGA|GLL|GNS|GSA|GSV|VTG|ZDA),")
"""Sentences of positioning where a line begins, or behind a byte that is no text: within a line they may be a field of another format."""

CLOCK = re.compile(r"([01]\d|2[0-3])([0-5]\d)([0-5]\d|60)(?:\.(\d*))?")
DAY = re.compile(r"\d{6}")
DEGREES_MINUTES = re.compile(r"\d{1,3}[0-5]\d\.\d+")
FIRST_1900 = 80
"""Years of two digits from here on are those of the last century: GPS began in 1980. (pynmea2 reads 69 to 79 as that century, too.)"""

FIELDS = 12
MAX_SENTENCE = 512


def recognises(file: InputFile, head: bytes) -> bool:
    """Tell whether sentences of positioning begin lines, or follow the bytes of another protocol."""
    return BEGIN.search(head) is not None


def read(file: InputFile, options: ReadOptions) -> Iterator[Batch]:
    """Read RMC sentences; the index is the line, which ends with CR, LF or both.

    A sentence that says when, but is void or has no whole place, is a fix without a place. All other sentences count as `other`, also
    those of ships around (AIS); but a file with places and without any RMC never says the day, so that each GGA, GLL and GNS is refused
    (`MISSING_FIELD`). A sentence may begin anywhere in a line; what is no sentence is passed over.
    """
    return collect(_items(file))


def _items(file: InputFile) -> Iterator[Item]:
    dated = _has_rmc(file)
    for number, sentence in _sentences(file):
        if RMC.match(sentence):
            found = _fix(sentence)
            yield Refused(number, found) if isinstance(found, Reason) else Fix(file.user, found[0], found[1], found[2], number)
        elif not dated and PLACE.match(sentence):
            yield Refused(number, Reason.MISSING_FIELD)
        else:
            yield OTHER


def _has_rmc(file: InputFile) -> bool:
    try:
        with file.open() as content:
            return any(RMC.search(block) for block in lines(content))
    except DamagedError:
        return False


def _sentences(file: InputFile) -> Iterator[tuple[int, bytes]]:
    number = 0
    with file.open() as content:
        for block in lines(content):
            for line in block.splitlines():
                number += 1
                for found in SENTENCE.finditer(line):
                    yield number, found[0]


def _fix(sentence: bytes) -> tuple[int, float | None, float | None] | Reason:
    """Return time and place of an RMC sentence, or why it has no time."""
    if len(sentence) > MAX_SENTENCE:
        return Reason.MALFORMED
    try:
        rmc = pynmea2.parse(sentence.decode("ascii"))
    except pynmea2.ParseError:
        return Reason.MALFORMED
    fields: list[str] = [*rmc.data, *[""] * FIELDS][:FIELDS]
    clock, status, lat, north, lon, east, _, _, day, _, _, mode = fields
    if not clock or not day:
        return Reason.MISSING_FIELD
    since_midnight, midnight_ms = CLOCK.fullmatch(clock), _midnight_ms(day)
    if since_midnight is None or midnight_ms is None:
        return Reason.WRONG_TYPE
    hours, minutes, seconds, fraction = since_midnight.groups("")
    t_ms = midnight_ms + ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1000 + int(f"{fraction:0<3.3}")
    valid = status == "A" and mode != "N"
    # pynmea2 takes minutes above 59, and makes 0 of a place without a hemisphere
    if valid and DEGREES_MINUTES.fullmatch(lat) and DEGREES_MINUTES.fullmatch(lon) and north in ("N", "S") and east in ("E", "W"):
        return t_ms, rmc.latitude, rmc.longitude
    return t_ms, None, None


@lru_cache(maxsize=64)
def _midnight_ms(day: str) -> int | None:
    """Return when a day, written ddmmyy, begins; None if there is no such day."""
    if not DAY.fullmatch(day):
        return None
    year = int(day[4:])
    try:
        return int(datetime(year + (1900 if year >= FIRST_1900 else 2000), int(day[2:4]), int(day[:2]), tzinfo=UTC).timestamp()) * 1000
    except ValueError:
        return None
