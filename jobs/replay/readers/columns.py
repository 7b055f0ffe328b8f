"""What the readers of delimited text share: pieces of a file as columns of text, and texts as numbers and times, many at once."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal, DecimalException
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from jobs.replay.fixes import Batch, DamagedError, Reason, batch_of
from jobs.replay.readers.collect import iso_ms

__all__ = [
    "UNIT_MS",
    "Piece",
    "Times",
    "bad_users",
    "batch_of_piece",
    "first_line",
    "lines",
    "local_times",
    "numbers",
    "pieces",
    "split_line",
    "times",
    "unix_times",
]

PIECE_BYTES = 1 << 21
MAX_LINE_BYTES = 1 << 25
BOM = b"\xef\xbb\xbf"
BLANK_LINE = re.compile(rb"\n(?:[ \t]*\r?\n|[ \t]+\Z)")
QUOTED = re.compile(r'"([^"]*+(?:""[^"]*+)*+)"?')
REPLACEMENT = "\ufffd"
NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
HOUR_US = 3_600_000_000
FIRST_US, LAST_US = ((datetime(year, 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND for year in (2, 9999))
"""The calendar ends at 1 and 9999 for `datetime`, elsewhere for arrow; a year less leaves room for any zone."""

MAX_MS = 2.0**62
MAX_EXACT = 2.0**53
UNIT_MS = {"s": 1000.0, "ms": 1.0, "us": 0.001}

Floats = NDArray[np.float64]
Times = tuple[NDArray[np.int64], dict[int, Reason]]
"""Milliseconds since 1970, 0 where there is none; and the places of those, with the reason."""


@dataclass(frozen=True)
class Piece:
    """Some lines of a file.

    Attributes
    ----------
    columns : sequence of Array of string with n entries
        The wanted fields of n lines.
    index : ndarray of int64 with shape (n,)
        Numbers of these lines in the file, from 1.
    refused : sequence of (int, Reason)
        Lines with another number of fields.
    other : int
        Empty lines, and those of the header.
    """

    columns: Sequence[pa.Array]
    index: NDArray[np.int64]
    refused: Sequence[tuple[int, Reason]] = ()
    other: int = 0


def lines(content: BinaryIO) -> Iterator[bytes]:
    """Yield pieces of whole lines, some megabytes each; lines end with LF, CRLF or CR.

    Raises
    ------
    DamagedError
        Where the content is damaged, or a line is too long for memory: after all whole lines before it.
    """
    kept, damage, ended = b"", None, False
    while damage is None and not ended:
        parts, size = [kept], 0
        try:
            while size < PIECE_BYTES and not ended:
                part = content.read1(PIECE_BYTES)  # type: ignore[attr-defined]  # what comes before damage comes by itself
                parts.append(part)
                size += len(part)
                ended = not part
        except DamagedError as error:
            damage = error
        kept = b"".join(parts)
        end = kept.rfind(b"\n") + 1 or kept.rfind(b"\r", 0, -1) + 1
        if end:
            yield kept[:end]
            kept = kept[end:]
        elif len(kept) > MAX_LINE_BYTES:
            damage = DamagedError("one of its lines is longer than 32 MB")
    if damage is not None:
        raise damage
    if kept:
        yield kept


def first_line(head: bytes) -> str:
    """Return the first line of a file as text, without its end and a byte order mark."""
    return re.split(rb"[\r\n]", head.removeprefix(BOM), maxsplit=1)[0].decode("utf-8", "replace")


def pieces(
    content: BinaryIO, fields: int, wanted: Sequence[int], delimiter: str = ",", skip: int = 0, *, quoted: bool = False
) -> Iterator[Piece]:
    """Yield the lines of a file in columns.

    Parameters
    ----------
    content : binary file
        UTF-8; what is not becomes replacement characters.
    fields : int
        Fields of a line.
    wanted : sequence of int
        Which of them are the columns.
    delimiter : str
        What separates them.
    skip : int
        Lines at the beginning that are no data.
    quoted : bool
        Whether fields may stand in double quotes. Lines end at their ends all the same, so that a stray quote spoils one line only.

    Raises
    ------
    DamagedError
        After what could be read.
    """
    number = 0
    for block in lines(content):
        rest = block.removeprefix(BOM) if number == 0 else block
        header = 0
        if number < skip:
            rows = rest.splitlines(keepends=True)
            header = min(skip - number, len(rows))
            number += header
            rest = b"".join(rows[header:])
        piece, count = _split(rest, fields, wanted, delimiter, quoted)
        yield Piece(piece.columns, piece.index + number, [(line + number, reason) for line, reason in piece.refused], piece.other + header)
        number += count


def _split(block: bytes, fields: int, wanted: Sequence[int], delimiter: str, quoted: bool) -> tuple[Piece, int]:
    """Split whole lines; return how many there were, too."""
    if not block.isascii():
        block = block.decode("utf-8", "replace").encode()
    is_odd = block.count(b"\r") > block.count(b"\r\n") or BLANK_LINE.search(b"\n" + block) or (quoted and block.count(b'"') % 2)
    found = None if is_odd else _split_at_once(block, fields, wanted, delimiter, quoted)
    return found or _split_by_line(block, fields, wanted, delimiter, quoted)


def _split_at_once(block: bytes, fields: int, wanted: Sequence[int], delimiter: str, quoted: bool) -> tuple[Piece, int] | None:
    """Split lines, none of which is empty; None if a field in quotes does not end on its line."""
    bad: list[int] = []

    def refuse(row: pyarrow.csv.InvalidRow) -> str:
        bad.append(row.number)
        return "skip"

    names = [str(n) for n in range(fields)]
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(block),
            pyarrow.csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
            pyarrow.csv.ParseOptions(
                delimiter=delimiter, quote_char='"' if quoted else False, ignore_empty_lines=False, invalid_row_handler=refuse
            ),
            pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False, include_columns=[names[n] for n in wanted]
            ),
        )
    except pa.ArrowInvalid:
        return None
    count = block.count(b"\n") + (not block.endswith(b"\n"))
    columns = [pa.concat_arrays(column.chunks) for column in table.columns]
    runs_on = quoted and any(len(column) and column[-1].as_py().endswith("\n") for column in columns)
    if table.num_rows + len(bad) != count or runs_on:
        return None
    index = np.delete(np.arange(1, count + 1), np.array(bad, np.int64) - 1)
    return Piece(columns, index, [(line, Reason.MALFORMED) for line in bad]), count


def _split_by_line(block: bytes, fields: int, wanted: Sequence[int], delimiter: str, quoted: bool) -> tuple[Piece, int]:
    rows: list[list[str]] = []
    index, refused, other = [], [], 0
    texts = block.decode().replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n") if block else []
    for line, text in enumerate(texts, 1):
        row = split_line(text, delimiter) if quoted else text.split(delimiter)
        if not text.strip(" \t"):
            other += 1
        elif len(row) == fields:
            rows.append(row)
            index.append(line)
        else:
            refused.append((line, Reason.MALFORMED))
    columns = [pa.array([row[n] for row in rows], pa.string()) for n in wanted]
    return Piece(columns, np.array(index, np.int64), refused, other), len(texts)


def split_line(text: str, delimiter: str) -> list[str]:
    """Return the fields of a line, which may stand in double quotes; a quote that nothing closes holds to the end of the line."""
    if '"' not in text:
        return text.split(delimiter)
    fields: list[str] = []
    at = 0
    while True:
        field = ""
        if inside := QUOTED.match(text, at):
            field, at = inside[1].replace('""', '"'), inside.end()
        end = text.find(delimiter, at)
        if end < 0:
            return [*fields, field + text[at:]]
        fields.append(field + text[at:end])
        at = end + len(delimiter)


def numbers(column: pa.Array) -> Floats:
    """Return texts as numbers; what is no finite decimal number becomes NaN."""
    try:
        values = pc.cast(column, pa.float64())
    except pa.ArrowInvalid:
        text = pc.if_else(pc.match_substring_regex(column, NUMBER), pc.utf8_trim_whitespace(column), pa.scalar("nan"))
        values = pc.cast(text, pa.float64())
    found: Floats = values.to_numpy(zero_copy_only=False)
    return np.where(np.isfinite(found), found, np.nan)


def unix_times(column: pa.Array, unit: str) -> Times:
    """Return texts that count `s`, `ms` or `us` since 1970 as milliseconds, rounded down."""
    values = numbers(column)
    with np.errstate(over="ignore"):
        good = np.abs(values * UNIT_MS[unit]) < MAX_MS
    ms = np.zeros(len(values), np.int64)
    whole = good & (np.abs(values) < MAX_EXACT) & ~pc.match_substring_regex(column, "[.eE]").to_numpy(zero_copy_only=False)
    ms[whole] = np.floor_divide(values[whole].astype(np.int64) * 1000, round(1000 / UNIT_MS[unit]))
    exact = Decimal(repr(UNIT_MS[unit]))
    for place, text in zip(*_some(column, good & ~whole), strict=True):
        try:
            ms[place] = math.floor(Decimal(text.strip()) * exact)
        except DecimalException:
            good[place] = False
    return ms, {
        place: Reason.WRONG_TYPE if text.strip() else Reason.MISSING_FIELD for place, text in zip(*_some(column, ~good), strict=True)
    }


def _some(column: pa.Array, where: NDArray[np.bool_]) -> tuple[list[int], list[str]]:
    return np.flatnonzero(where).tolist(), column.filter(pa.array(where)).to_pylist()


def times(column: pa.Array, zone: tzinfo | None) -> Times:
    """Return ISO 8601 texts as milliseconds since 1970, rounded down; those without an offset are in `zone`, or refused without one."""
    for is_local, kind in enumerate((pa.timestamp("us", "UTC"), pa.timestamp("us"))):
        try:
            us = pc.cast(pc.cast(column, kind), pa.int64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            continue
        if ((us >= FIRST_US) & (us < LAST_US)).all():
            return local_times(us, zone) if is_local else (us // 1000, {})
    ms, bad = np.zeros(len(column), np.int64), {}
    for place, text in enumerate(column.to_pylist()):
        # Digits alone would pass for a day: those of a time in milliseconds for one of the Middle Ages.
        found = Reason.WRONG_TYPE if re.match(NUMBER, text) else iso_ms(text.strip(), zone)
        if isinstance(found, Reason):
            bad[place] = found
        else:
            ms[place] = found
    return ms, bad


def local_times(us: NDArray[np.int64], zone: tzinfo | None) -> Times:
    """Return microseconds since 1970 by the clocks of a zone as milliseconds, rounded down; an hour that comes twice is its first."""
    if zone is None:
        return np.zeros(len(us), np.int64), dict.fromkeys(range(len(us)), Reason.TIME_ZONE_MISSING)
    good = (us >= FIRST_US) & (us < LAST_US)
    hours, which = np.unique(np.where(good, us, 0) // HOUR_US, return_inverse=True)
    offsets = np.array([[_offset_us(hour * HOUR_US + part, zone) for part in (0, HOUR_US - 1)] for hour in hours.tolist()], np.int64)
    offset = offsets.reshape(-1, 2)[which, 0]
    for place in np.flatnonzero(offsets.reshape(-1, 2)[which, 1] != offset).tolist():
        offset[place] = _offset_us(int(us[place]), zone)
    return np.where(good, (us - offset) // 1000, 0), dict.fromkeys(np.flatnonzero(~good).tolist(), Reason.WRONG_TYPE)


def _offset_us(us: int, zone: tzinfo) -> int:
    offset = zone.utcoffset(EPOCH.replace(tzinfo=zone) + us * MICROSECOND)
    return 0 if offset is None else offset // MICROSECOND


def bad_users(users: pa.Array) -> dict[int, Reason]:
    """Return the places of texts that name nobody: empty, or not UTF-8, where two different ones could look the same."""
    broken = pc.match_substring(users, REPLACEMENT).to_numpy(zero_copy_only=False)
    empty = pc.equal(users, "").to_numpy(zero_copy_only=False)
    return dict.fromkeys(np.flatnonzero(broken).tolist(), Reason.WRONG_TYPE) | dict.fromkeys(
        np.flatnonzero(empty).tolist(), Reason.MISSING_FIELD
    )


def batch_of_piece(
    piece: Piece, user: str | pa.Array, t_ms: NDArray[np.int64], bad: Mapping[int, Reason], lat: Floats, lon: Floats, prefix: str = ""
) -> Batch:
    """Make a batch of a piece, of which the lines at the places `bad` are refused, and those that name nobody."""
    reasons = dict(bad)
    if not isinstance(user, str):
        reasons |= bad_users(user)
        user = pc.binary_join_element_wise(pa.scalar(prefix), user, "")
    if not reasons:
        return batch_of(user, t_ms, lat, lon, piece.index, piece.refused, piece.other)
    good = np.ones(len(t_ms), bool)
    good[list(reasons)] = False
    refused = sorted([*piece.refused, *((int(piece.index[place]), reason) for place, reason in reasons.items())])
    users = user if isinstance(user, str) else user.filter(pa.array(good))
    return batch_of(users, t_ms[good], lat[good], lon[good], piece.index[good], refused, piece.other)
