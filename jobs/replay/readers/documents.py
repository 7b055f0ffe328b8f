"""What the readers of JSON share: the items of a list anywhere in a document of any size, one after the other."""

from collections.abc import Iterator
from typing import Any

import ijson

from jobs.replay.files import InputFile
from jobs.replay.fixes import DamagedError

__all__ = ["items_of"]

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def items_of(file: InputFile, prefix: str) -> Iterator[Any]:
    """Yield the items of the list at a prefix, as `ijson` names it: "item" of a document that is a list, "locations.item" of a member.

    Raises
    ------
    DamagedError
        After all whole items, if the document is broken or ends within (NaN and Infinity are no JSON).
    """
    with file.open() as content:
        if content.peek(len(BYTE_ORDER_MARK)).startswith(BYTE_ORDER_MARK):  # type: ignore[attr-defined]
            content.read(len(BYTE_ORDER_MARK))
        try:
            yield from ijson.items(content, prefix, use_float=True)
        except (ijson.JSONError, UnicodeDecodeError, OverflowError) as error:
            raise DamagedError("its JSON is broken or not whole") from error
