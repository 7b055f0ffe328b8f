"""OwnTracks recorder files (`.rec`): a line a message, with the time of its arrival, its kind, and the JSON that the phone sent."""

import re
from collections.abc import Iterator
from typing import Any

import orjson

from jobs.replay.files import InputFile
from jobs.replay.fixes import Batch, ReadOptions, Reason
from jobs.replay.readers.collect import OTHER, Fix, Item, Refused, collect, number
from jobs.replay.readers.columns import lines

__all__ = ["read", "recognises"]

LINE = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\t[^\t]*\t")
POSITIONS = ("location", "transition")
MAX_S = 1e15
PARTS = 3
UNDER_REC = ("rec", 3)


def recognises(file: InputFile, head: bytes) -> bool:
    """Tell whether the first line is one of a recorder."""
    return LINE.match(head) is not None


def read(file: InputFile, options: ReadOptions) -> Iterator[Batch]:
    """Read messages of the kinds `location` and `transition`, at `tst`, never at the time of arrival; the index is the line.

    The user is "user/device" if the message names its topic, or if the file lies in `rec/user/device`.
    """
    above = file.parents
    name, depth = UNDER_REC
    user = "/".join(above[-2:]) if len(above) >= depth and above[-depth] == name else file.user
    return collect(_items(file, user))


def _items(file: InputFile, user: str) -> Iterator[Item]:
    index = 0
    with file.open() as content:
        for block in lines(content):
            for line in block.removesuffix(b"\n").split(b"\n"):
                index += 1
                yield _item(line, index, user) if line.strip() else OTHER


def _item(line: bytes, index: int, user: str) -> Item:
    parts = line.split(b"\t", PARTS - 1)
    if len(parts) < PARTS:
        return Refused(index, Reason.MALFORMED)
    try:
        message: Any = orjson.loads(parts[-1])
    except orjson.JSONDecodeError:
        return Refused(index, Reason.MALFORMED)
    if type(message) is not dict:
        return Refused(index, Reason.MALFORMED)
    if message.get("_type") not in POSITIONS:
        return OTHER
    seconds = message.get("tst")
    if seconds is None:
        return Refused(index, Reason.MISSING_FIELD)
    when = number(seconds)
    if when is None or abs(when) > MAX_S:
        return Refused(index, Reason.WRONG_TYPE)
    topic = message.get("topic")
    named = topic.split("/") if isinstance(topic, str) else []
    who = "/".join(named[1:3]) if len(named) >= PARTS and all(named[1:3]) else user
    return Fix(who, int(when * 1000 // 1), number(message.get("lat")), number(message.get("lon")), index)
