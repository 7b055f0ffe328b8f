"""What the readers of delimited text share: pieces of a file as columns of text, and texts as numbers and times, many at once."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from jobs.replay.fixes import DamagedError, Reason

__all__ = ["UNIT_MS", "Piece", "first_line", "lines", "numbers", "pieces", "times", "unix_times"]

PIECE_BYTES = 1 << 22
MAX_LINE_BYTES = 1 << 25
NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*$"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_MS = 2.0**62
UNIT_MS = {"s": 1000.0, "ms": 1.0, "us": 0.001}
BLANK = b" \t\r\n"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Piece:
    """Some lines of a file.

    Attributes
    ----------
    columns : sequence of Array of string with n entries
        The fields of n lines.
    index : ndarray of int64 with shape (n,)
        Numbers of these lines in the file, from 1.
    refused : sequence of (int, Reason)
        Lines with another number of fields.
    other : int
        Empty lines.
    """

    columns: Sequence[pa.Array]
    index: NDArray[np.int64]
    refused: Sequence[tuple[int, Reason]]
    other: int


def lines(content: BinaryIO) -> Iterator[bytes]:
    """Yield pieces of whole lines, some megabytes each; a line too long for memory ends the file.

    Raises
    ------
    DamagedError
        After all whole lines before it.
    """
    kept = b""
    while piece := content.read(PIECE_BYTES):
        kept += piece
        end = kept.rfind(b"\n") + 1
        if end:
            yield kept[:end]
            kept = kept[end:]
        elif len(kept) > MAX_LINE_BYTES:
            raise DamagedError("one of its lines is longer than 32 MB")
    if kept:
        yield kept


def first_line(head: bytes) -> str:
    """Return the first line of a file as text, without its end and a byte order mark."""
    return head.removeprefix(b"\xef\xbb\xbf").split(b"\n", 1)[0].decode("utf-8", "replace").strip("\r\n")


def pieces(content: BinaryIO, fields: int, delimiter: str = ",", skip: int = 0, *, quoted: bool = False) -> Iterator[Piece]:
    """Yield the lines of a file in columns.

    Parameters
    ----------
    content : binary file
        UTF-8; what is not becomes replacement characters.
    fields : int
        Fields of a line.
    delimiter : str
        What separates them.
    skip : int
        Lines at the beginning that are no data.
    quoted : bool
        Whether fields may stand in double quotes; lines end everywhere all the same.

    Raises
    ------
    DamagedError
        After what could be read.
    """
    number = 0
    for block in lines(content):
        if skip > number:
            rows = block.splitlines(keepends=True)
            cut = min(skip - number, len(rows))
            number += cut
            block = b"".join(rows[cut:])  # noqa: PLW2901
        if block:
            piece, count = _split(block, fields, delimiter, number + 1, quoted)
            number += count
            yield piece


def _split(block: bytes, fields: int, delimiter: str, first: int, quoted: bool) -> tuple[Piece, int]:
    """Split whole lines, of which the first has number `first`; return how many there were, too."""
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(block),
            pyarrow.csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=[str(n) for n in range(fields)]),
            pyarrow.csv.ParseOptions(delimiter=delimiter, quote_char='"' if quoted else False, ignore_empty_lines=False),
            pyarrow.csv.ConvertOptions(column_types={str(n): pa.string() for n in range(fields)}, strings_can_be_null=False),
        )
        count = block.count(b"\n") + (not block.endswith(b"\n"))
        if table.num_rows == count and b"\r" not in block.replace(b"\r\n", b"\n"):
            columns = [column.combine_chunks() for column in table.columns]
            return Piece([_array(column) for column in columns], np.arange(first, first + count), [], 0), count
    except pa.ArrowInvalid:
        pass  # a line with another number of fields, or text that is not UTF-8
    return _split_one_by_one(block, fields, delimiter, first, quoted)


def _split_one_by_one(block: bytes, fields: int, delimiter: str, first: int, quoted: bool) -> tuple[Piece, int]:
    rows, index, refused, other = [], [], [], 0
    texts = block.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    for number, text in enumerate(texts, first):
        if not text.strip():
            other += 1
            continue
        row = text.split(delimiter)
        if quoted and '"' in text:
            try:
                row = next(csv.reader([text], delimiter=delimiter), [])
            except csv.Error:
                row = []
        if len(row) == fields:
            rows.append(row)
            index.append(number)
        else:
            refused.append((number, Reason.MALFORMED))
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)] if rows else [pa.array([], pa.string())] * fields
    return Piece(columns, np.array(index, np.int64), refused, other), len(texts)


def _array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def numbers(column: pa.Array) -> Floats:
    """Return texts as numbers; what is no finite decimal number becomes NaN."""
    try:
        values = pc.cast(column, pa.float64())
    except pa.ArrowInvalid:
        plain = pc.replace_substring_regex(pc.utf8_trim_whitespace(column), r"^\+", "")
        values = pc.cast(pc.if_else(pc.match_substring_regex(column, NUMBER), plain, pa.scalar(None, pa.string())), pa.float64())
    found: Floats = pc.fill_null(values, float("nan")).to_numpy(zero_copy_only=False)
    return np.where(np.isfinite(found), found, np.nan)


def unix_times(column: pa.Array, unit: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return texts that count `s`, `ms` or `us` since 1970 as milliseconds, rounded down, and which of them are no times."""
    ms = np.floor(numbers(column) * UNIT_MS[unit] + 1e-6)
    bad = ~(np.abs(ms) < MAX_MS)
    return np.where(bad, 0, ms).astype(np.int64), bad


def times(column: pa.Array, zone: tzinfo | None) -> tuple[NDArray[np.int64], list[tuple[int, Reason]]]:
    """Return ISO 8601 texts as milliseconds since 1970, rounded down.

    Parameters
    ----------
    column : Array of string
        Texts with or without an offset.
    zone : tzinfo or None
        Zone of those without; None: they are refused.

    Returns
    -------
    (t_ms, refused)
        Times, 0 where refused; and places in the column with the reason.
    """
    try:
        utc = pc.cast(column, pa.timestamp("us", "UTC"))
        return _floor_ms(utc), []
    except pa.ArrowInvalid:
        pass
    shift = zone.utcoffset(None) if zone is not None else None
    if shift is not None:
        try:
            return _floor_ms(pc.cast(column, pa.timestamp("us"))) - shift // timedelta(milliseconds=1), []
        except pa.ArrowInvalid:
            pass
    found, refused = np.zeros(len(column), np.int64), []
    for place, text in enumerate(column.to_pylist()):
        try:
            moment = datetime.fromisoformat(text.strip())
            if moment.tzinfo is None and zone is None:
                refused.append((place, Reason.TIME_ZONE_MISSING))
            else:
                whole = moment if moment.tzinfo else moment.replace(tzinfo=zone)
                found[place] = (whole - EPOCH) // timedelta(milliseconds=1)
        except (ValueError, OverflowError):
            refused.append((place, Reason.WRONG_TYPE if text.strip() else Reason.MISSING_FIELD))
    return found, refused


def _floor_ms(moments: pa.Array) -> NDArray[np.int64]:
    return np.asarray(pc.cast(moments, pa.int64()).to_numpy(zero_copy_only=False)) // 1000
