"""First step of a replay, for JSON: a stream of bytes -> the items or lines in it, a piece at a time, however long the whole is.

A document is cut at the commas between its items, found by counting the brackets that are outside of texts, and items are parsed one by
one. So an item that is broken, nested too deep or too long never takes those beside it along, and memory is bounded by `MAX_ITEM_BYTES`.
(An event parser ends for good at the first NaN, and ijson's keeps a path for each open bracket: 200,000 of them take all memory.)
"""

import io
import json
import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any, BinaryIO, cast

import numpy as np
import orjson

from jobs.replay.fixes import DamagedError, Reason

__all__ = ["MAX_ITEM_BYTES", "json_items", "opening", "parse", "text_lines"]

PIECE_BYTES = 1 << 20
MAX_ITEM_BYTES = 16 << 20
"""A longer item or line is refused (`UNSUPPORTED`): once parsed, it could take 25 times as much memory."""

QUOTE, OPEN, CLOSE, COMMA = range(1, 5)
KINDS = np.zeros(256, np.uint8)
for signs, number in ((b'"', QUOTE), (b"[{", OPEN), (b"]}", CLOSE), (b",", COMMA)):
    KINDS[list(signs)] = number
STEP = np.array([0, 0, 1, -1, 0])
ESCAPE = re.compile(rb"\\.", re.DOTALL)
MEMBER_NAME = re.compile(rb'\s*"([^"\\]*)"\s*:\s*')
BLANK = b" \t\r\n\x1e"
"""Between documents; \\x1e stands before each text of a GeoJSON text sequence (RFC 8142)."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

OUTSIDE, MEMBERS, ITEMS = range(3)


def parse(text: bytes) -> Any:
    """Parse one item; `Reason.MALFORMED` if it is none.

    What is JSON but for its numbers (NaN, 1e400) or texts (not UTF-8) is read all the same: its other fields still say who was there when.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(text.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return Reason.MALFORMED


def json_items(content: BinaryIO, members: Collection[str] = ()) -> Iterator[tuple[str | None, list[Any]]]:
    """Yield the items of a JSON document in its order, in lists of those that are complete at a time.

    Parameters
    ----------
    content
        A document, or several one after the other. The items of an array are its elements; those of an object are the elements of its
        arrays that are called as in `members`, or, if it has none of these, itself.
    members
        Names of arrays.

    Yields
    ------
    (str or None, list)
        Name of the array if it is a member, and items: JSON values, or a `Reason` in place of what is none.

    Raises
    ------
    DamagedError
        After all that is complete: if the stream cannot be read on, ends in the middle of a document, or is no JSON.
    """
    document = _Document(members)
    for piece in _unescaped(_pieces(content)):
        yield from document.feed(piece)
    document.end()


class _Document:
    """Where in a document we are, and the beginning of what is not complete yet."""

    def __init__(self, members: Collection[str]) -> None:
        self._wanted = members
        self._scan = _Scan()
        self._mode = OUTSIDE
        self._text = b""
        self._begin = 0  # in `_text`: of the item, or of the object that may be an item itself
        self._member: int | None = None  # in `_text`: where the name of the object's next member begins
        self._name: str | None = None
        self._level = 0  # of the brackets around items
        self._whole = False  # the object is still one that may be an item itself
        self._too_long = False  # the item or object at hand, which is no longer kept
        self._first = False  # nothing has come since the array's bracket

    def feed(self, piece: bytes) -> Iterator[tuple[str | None, list[Any]]]:
        before = len(self._text)
        self._text += piece
        cuts: list[int] = []
        for at, kind, level in self._scan.tokens(piece):
            position = at + before
            if self._mode == ITEMS:
                if kind == COMMA and level == self._level:
                    cuts.append(position)
                elif kind == CLOSE and level < self._level:
                    yield from self._cut([*cuts, position], last=True)
                    cuts = []
                    self._check(position, b"]")
                    self._mode, self._begin, self._member = MEMBERS if level else OUTSIDE, position + 1, None
            elif self._mode == MEMBERS:
                if kind == COMMA and level == 1:
                    self._member = position + 1
                elif kind == OPEN and level == 1:
                    self._open_member(position)
                elif kind == CLOSE and level == 0:
                    if self._whole or self._too_long:
                        yield None, [Reason.UNSUPPORTED if self._too_long else parse(self._text[self._begin : position + 1])]
                    self._check(position, b"}")
                    self._mode, self._begin, self._too_long = OUTSIDE, position + 1, False
            else:
                self._open_document(position, kind)
        if cuts:
            yield from self._cut(cuts, last=False)
            self._begin = cuts[-1] + 1
        self._keep()

    def end(self) -> None:
        if self._mode != OUTSIDE:
            raise DamagedError("it ends in the middle of a document")

    def _open_document(self, position: int, kind: int) -> None:
        if kind != OPEN or self._text[self._begin : position].strip(BLANK):
            raise DamagedError("it is no JSON")
        if self._text[position] == ord("["):
            self._open_items(None, 1, position)
        else:
            self._mode, self._begin, self._member, self._whole, self._too_long = MEMBERS, position, position + 1, True, False

    def _open_member(self, position: int) -> None:
        array = self._member is not None and self._text[position] == ord("[")
        named = MEMBER_NAME.fullmatch(self._text, self._member or 0, position) if array else None
        name = named[1].decode("utf-8", "replace") if named else None
        if name in self._wanted:
            self._open_items(name, 2, position)
        self._member = None

    def _open_items(self, name: str | None, level: int, position: int) -> None:
        self._mode, self._name, self._level, self._begin = ITEMS, name, level, position + 1
        self._whole, self._too_long, self._first = False, False, True

    def _check(self, position: int, bracket: bytes) -> None:
        if self._text[position : position + 1] != bracket:
            raise DamagedError("its brackets do not match")

    def _cut(self, edges: list[int], last: bool) -> Iterator[tuple[str | None, list[Any]]]:
        """Yield the items that end at some positions of the text."""
        nothing = self._first and last and len(edges) == 1 and not self._text[self._begin : edges[0]].strip()
        if not (nothing and not self._too_long):
            yield self._name, _values(self._text, self._begin, edges, self._too_long)
        self._first, self._too_long = False, False

    def _keep(self) -> None:
        """Forget what is not needed any more, or is too long to be kept."""
        if self._mode == OUTSIDE:
            if self._text[self._begin :].strip(BLANK):
                raise DamagedError("it is no JSON")
            begin: int | None = None
        else:
            begin = self._begin if self._mode == ITEMS or self._whole else self._member
        if begin is not None and len(self._text) - begin > MAX_ITEM_BYTES:
            self._too_long = self._too_long or self._whole or self._mode == ITEMS
            self._whole, self._member, begin = False, None, None
        self._text = b"" if begin is None else self._text[begin:]
        self._begin = 0
        self._member = self._member - begin if self._member is not None and begin is not None else None


class _Scan:
    """Brackets and commas outside of texts, from piece to piece; the first byte of a piece is never an escaped one."""

    def __init__(self) -> None:
        self._depth, self._in_text = 0, 0

    def tokens(self, piece: bytes) -> Iterator[tuple[int, int, int]]:
        """Yield (position, kind, level) of the outermost: level is how many brackets are open around a bracket, or around a comma."""
        kinds = KINDS[np.frombuffer(ESCAPE.sub(b"__", piece) if b"\\" in piece else piece, np.uint8)]
        at = np.flatnonzero(kinds)
        kinds = kinds[at]
        quotes = kinds == QUOTE
        in_text = (self._in_text + np.cumsum(quotes)) & 1
        if len(at):
            self._in_text = int(in_text[-1])
        outside = (in_text == 0) & ~quotes
        at, kinds = at[outside], kinds[outside]
        depth = self._depth + np.cumsum(STEP[kinds])
        if len(at):
            self._depth = int(depth[-1])
        level = depth - (kinds == OPEN)
        outer = level <= np.where(kinds == COMMA, 2, 1)
        return zip(at[outer].tolist(), kinds[outer].tolist(), level[outer].tolist(), strict=True)


def _values(text: bytes, begin: int, edges: list[int], first_too_long: bool) -> list[Any]:
    """Parse what lies between positions of a text, all at once if nothing in it is broken."""
    if first_too_long:
        return [Reason.UNSUPPORTED, *(_values(text, edges[0] + 1, edges[1:], False) if len(edges) > 1 else ())]
    try:
        values: list[Any] = orjson.loads(b"[%b]" % text[begin : edges[-1]])
        if len(values) == len(edges):
            return values
    except orjson.JSONDecodeError:
        pass
    starts = [begin, *(edge + 1 for edge in edges[:-1])]
    return [parse(text[start:edge]) for start, edge in zip(starts, edges, strict=True)]


@lru_cache(maxsize=4)
def opening(head: bytes) -> Any:
    """Return the first document of a text as far as the text goes, its open brackets closed; None if it does not begin with one."""
    head = head.removeprefix(BYTE_ORDER_MARK).lstrip(BLANK)
    if head[:1] not in (b"{", b"["):
        return None
    brackets: list[str] = []
    end, closing = 0, ""
    for found in re.finditer(rb'"(?:[^"\\]|\\.)*(?:"|\Z)|[\[\]{},]', head, re.DOTALL):
        sign = found[0].decode("latin-1")
        if sign in "[{":
            brackets.append("]" if sign == "[" else "}")
        elif sign in "]}" and brackets:
            brackets.pop()
        elif sign != ",":
            continue
        end, closing = found.end() - (sign == ","), "".join(reversed(brackets))
        if not brackets:
            break
    value = parse(head[:end] + closing.encode())
    return None if isinstance(value, Reason) else value


def text_lines(content: BinaryIO) -> Iterator[tuple[int, list[bytes | Reason], bool]]:
    """Yield (number of the first, lines without their ends, whether the last one ended) of a text; only its last line can lack an end.

    A line that is too long is a `Reason` in its place.
    """
    number, text, too_long = 1, b"", False
    for piece in _pieces(content):
        text += piece
        # A CR at the very end may be half of a CRLF.
        end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1
        lines: list[bytes | Reason] = [*text[:end].splitlines()]
        text = text[end:]
        if lines:
            if too_long:
                lines[0], too_long = Reason.UNSUPPORTED, False
            yield number, lines, True
            number += len(lines)
        if len(text) > MAX_ITEM_BYTES:
            text, too_long = b"\r" if text.endswith(b"\r") else b"", True
    if text or too_long:
        yield number, [Reason.UNSUPPORTED if too_long else text.rstrip(b"\r")], text.endswith(b"\r")


def _pieces(content: BinaryIO) -> Iterator[bytes]:
    """Yield the stream in pieces; what could be read before it was found to be damaged comes out before that."""
    reader, begun = cast(io.BufferedReader, content), False
    while True:
        parts, size, damage = [], 0, None
        try:
            while size < PIECE_BYTES and (part := reader.read1(PIECE_BYTES)):
                parts.append(part)
                size += len(part)
        except DamagedError as error:
            damage = error
        if size:
            piece = b"".join(parts)
            yield piece if begun else piece.removeprefix(BYTE_ORDER_MARK)
            begun = True
        if damage:
            raise damage
        if not size:
            return


def _unescaped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Move a backslash at the end of a piece to the next one if it escapes what comes there."""
    held = b""
    for piece in pieces:
        text = held + piece
        odd = (len(text) - len(text.rstrip(b"\\"))) % 2
        held = text[-1:] if odd else b""
        yield text[: len(text) - odd]
    yield held
