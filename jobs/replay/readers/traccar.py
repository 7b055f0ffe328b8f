"""Positions of Traccar's API or database, as JSON: a list of them, or a member `positions`."""

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from jobs.replay.files import InputFile
from jobs.replay.fixes import Batch, ReadOptions, Reason
from jobs.replay.readers.collect import Fix, Item, Refused, collect, iso_ms, number
from jobs.replay.readers.documents import items_of

__all__ = ["read", "recognises"]

FIELDS = (rb'"deviceId"\s*:', rb'"fixTime"\s*:', rb'"latitude"\s*:')


def recognises(file: InputFile, head: bytes) -> bool:
    """Tell whether a document holds the fields of a position."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"[", b"{") and all(re.search(field, head) for field in FIELDS)


def read(file: InputFile, options: ReadOptions) -> Iterator[Batch]:
    """Read positions of the devices, by `deviceId`, at their `fixTime`; the index is the position's number.

    One that is not `valid`, or `outdated`, repeats an older place: it is a fix without one. `speed`, which is in knots, is not read.
    """
    found = chain(items_of(file, "item"), items_of(file, "positions.item"))
    return collect(_item(position, index, options) for index, position in enumerate(found, 1))


def _item(position: Any, index: int, options: ReadOptions) -> Item:
    if type(position) is not dict:
        return Refused(index, Reason.MALFORMED)
    device, when = position.get("deviceId"), iso_ms(position.get("fixTime"), options.zone)
    if device is None or device == "":
        return Refused(index, Reason.MISSING_FIELD)
    if type(device) not in (int, str):
        return Refused(index, Reason.WRONG_TYPE)
    if isinstance(when, Reason):
        return Refused(index, when)
    if position.get("valid") is False or position.get("outdated") is True:
        return Fix(str(device), when, None, None, index)
    return Fix(str(device), when, number(position.get("latitude")), number(position.get("longitude")), index)
