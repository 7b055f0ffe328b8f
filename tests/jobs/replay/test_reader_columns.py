"""Delimited text in columns: the quick way and the slow way agree, whatever the text and wherever it is cut."""

import csv
import io
import math
import re
import tracemalloc
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.replay.fixes import DamagedError, Reason
from jobs.replay.readers import columns
from jobs.replay.readers.columns import first_line, lines, local_times, numbers, pieces, split_line, times, unix_times

BERLIN = ZoneInfo("Europe/Berlin")
ODD_TEXT = st.lists(
    st.sampled_from([b"a", b"1", b",", b",", b'"', b"\n", b"\n", b"\r", b"\r\n", b" ", b"\xc3\xa9", b"\xff", b"\0"]), max_size=40
)
NUMBER_TEXT = st.text("0123456789.-+eE xnaif", max_size=6) | st.sampled_from(
    ["1e400", "-1e-400", "nan(1)", "Infinity", "0x10", "true", "1" * 400]
)
TIME_TEXT = st.sampled_from(
    [
        "2024-03-10T01:30:00Z",
        "2024-03-10 01:30:00.1239999+07",
        "2024-03-31T02:30:00",
        "2024-10-27T02:30:00.5",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "2024-13-10T01:30:00Z",
        "1211033100000",
        "20240310",
        "20240310T013000Z",
        "1969-12-31T23:59:59.9999Z",
        " 2024-03-10 ",
        "",
        "noon",
    ]
)


class Source(io.RawIOBase):
    """Bytes without end, or that break off as a packed file does, a thousand at a time."""

    def __init__(self, content: bytes | None) -> None:
        self._content = None if content is None else io.BytesIO(content)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._content is None:
            buffer[:] = b"7" * len(buffer)
            return len(buffer)
        count = self._content.readinto(memoryview(buffer)[:1000])
        if not count:
            raise DamagedError("its packing is broken")
        return count


def whole(content: bytes, piece_bytes: int, **how: Any) -> tuple[list[tuple[Any, ...]], list[int], list[tuple[int, Reason]], int]:
    rows: list[tuple[Any, ...]] = []
    index: list[int] = []
    refused: list[tuple[int, Reason]] = []
    other = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "PIECE_BYTES", piece_bytes)
        for piece in pieces(io.BytesIO(content), 3, (2, 0), **how):
            rows += zip(*(column.to_pylist() for column in piece.columns), strict=True)
            index += piece.index.tolist()
            refused += piece.refused
            other += piece.other
    return rows, index, refused, other


@settings(deadline=None)
@given(ODD_TEXT.map(b"".join), st.booleans(), st.integers(0, 3), st.integers(1, 30))
def test_a_line_means_the_same_however_it_is_split_and_cut(content: bytes, quoted: bool, skip: int, piece_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_split_at_once", lambda *_: None)
        slowly = whole(content, 1 << 20, quoted=quoted, skip=skip)
    assert whole(content, 1 << 20, quoted=quoted, skip=skip) == slowly
    assert whole(content, piece_bytes, quoted=quoted, skip=skip) == slowly
    _, index, refused, other = slowly
    assert len(index) + len(refused) + other == len(content.splitlines())


def test_the_quick_way_takes_files_with_wrong_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(columns, "_split_by_line")
    rows, index, refused, other = whole(b'h,h,h\r\na,1,"x, ""y"""\r\nb,2\r\nc,3,z,\r\nd,4,w', 1 << 20, skip=1, quoted=True)
    assert rows == [('x, "y"', "a"), ("w", "d")]
    assert index == [2, 5]
    assert refused == [(3, Reason.MALFORMED), (4, Reason.MALFORMED)]
    assert other == 1


def test_empty_lines_are_no_rows_but_count_as_lines() -> None:
    assert whole(b"\n1,2,3\n\n \t\r\n4,5,6\n,,\n\n", 1 << 20) == ([("3", "1"), ("6", "4"), ("", "")], [2, 5, 6], [], 4)


@settings(deadline=None)
@given(st.lists(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])), min_size=3, max_size=3), max_size=5))
def test_quoted_fields_come_back_as_they_were_written(rows: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows(rows)
    assert whole(text.getvalue().encode(), 1 << 20, quoted=True)[0] == [(row[2], row[0]) for row in rows]
    assert [split_line(line, ",") for line in text.getvalue().split("\r\n")[:-1]] == rows


def test_a_byte_order_mark_is_no_text() -> None:
    assert whole(b"\xef\xbb\xbfa,b,c\n", 1 << 20)[0] == whole(b"\xef\xbb\xbfa,b,c\n\n", 1 << 20)[0] == [("c", "a")]
    assert first_line(b"\xef\xbb\xbflat,lon\r\n1,2") == "lat,lon"


def test_what_comes_before_damage_is_yielded_without_the_line_that_is_cut() -> None:
    content = b"".join(b"line %d\n" % n for n in range(5_000))
    found: list[bytes] = []
    with pytest.raises(DamagedError, match="packing"):
        found.extend(lines(io.BufferedReader(Source(content + b"line 50"), 512)))
    assert b"".join(found) == content


def test_a_line_without_end_is_damage_and_takes_bounded_memory() -> None:
    tracemalloc.start()
    with pytest.raises(DamagedError, match="longer than 32 MB"):
        list(lines(io.BufferedReader(Source(None))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * columns.MAX_LINE_BYTES


@settings(deadline=None)
@given(st.lists(NUMBER_TEXT, max_size=6))
def test_a_number_means_the_same_beside_whatever_others_and_is_finite_or_nan(texts: list[str]) -> None:
    found = numbers(pa.array(texts, pa.string()))
    assert not np.isinf(found).any()
    for text, value in zip(texts, found, strict=True):
        assert np.array_equal(numbers(pa.array([text])), [value], equal_nan=True)
        if re.match(columns.NUMBER, text):
            assert value == float(text) or (math.isnan(value) and math.isinf(float(text)))
        else:
            assert math.isnan(value)


@settings(deadline=None)
@given(st.lists(st.decimals(-(10**13), 10**13, places=4).map(str) | NUMBER_TEXT, max_size=6), st.sampled_from(["s", "ms", "us"]))
def test_times_in_units_are_exact_and_rounded_down(texts: list[str], unit: str) -> None:
    found, bad = unix_times(pa.array(texts, pa.string()), unit)
    for place, text in enumerate(texts):
        if re.match(columns.NUMBER, text) and abs(float(text)) < 1e15:
            assert found[place] == math.floor(Decimal(text.strip()) * {"s": 1000, "ms": 1, "us": Decimal("0.001")}[unit])
            assert place not in bad
        elif not re.match(columns.NUMBER, text):
            assert bad[place] is (Reason.WRONG_TYPE if text.strip() else Reason.MISSING_FIELD)


def test_a_time_that_no_integer_holds_is_refused() -> None:
    assert unix_times(pa.array(["1e300", "9" * 40, "4e18"]), "s")[1] == dict.fromkeys(range(3), Reason.WRONG_TYPE)
    assert unix_times(pa.array(["4e15", "-4e15"]), "s")[0].tolist() == [4 * 10**18, -4 * 10**18]


@settings(deadline=None)
@given(st.lists(TIME_TEXT, max_size=5), st.sampled_from([None, UTC, timezone(timedelta(hours=8)), BERLIN]))
def test_a_time_means_the_same_beside_whatever_others(texts: list[str], zone: tzinfo | None) -> None:
    found, bad = times(pa.array(texts, pa.string()), zone)
    for place, text in enumerate(texts):
        alone, alone_bad = times(pa.array([text]), zone)
        assert (found[place], bad.get(place)) == (alone[0], alone_bad.get(0))


@settings(deadline=None)
@given(
    st.datetimes(datetime.fromisoformat("0002-01-02"), datetime.fromisoformat("9998-12-30")),
    st.sampled_from([UTC, BERLIN, ZoneInfo("Australia/Lord_Howe")]),
)
def test_local_times_are_those_of_the_calendar(moment: datetime, zone: tzinfo) -> None:
    expected = (moment.replace(tzinfo=zone) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert times(pa.array([moment.isoformat(sep=" ")]), zone) == ([expected], {})
    assert times(pa.array([f" {moment.isoformat()}"]), zone) == ([expected], {})


def test_an_hour_in_which_clocks_are_moved_is_read_like_any_other() -> None:
    texts = [f"2024-{day}T0{hour}:{minute}:00" for day in ("03-31", "10-27") for hour in (1, 2, 3) for minute in ("00", "30")]
    expected = [round(datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp() * 1000) for text in texts]
    assert times(pa.array(texts), BERLIN)[0].tolist() == expected
    half_hours = ["1937-07-01T00:00:00", "1937-06-30T23:59:59.999", "1937-07-01T00:00:20"]
    amsterdam = ZoneInfo("Europe/Amsterdam")
    assert times(pa.array(half_hours), amsterdam)[0].tolist() == [times(pa.array([f"{text} "]), amsterdam)[0][0] for text in half_hours]


def test_local_times_beyond_the_calendar_are_refused() -> None:
    assert local_times(np.array([2**62, -(2**62), 1_000]), UTC)[1] == {0: Reason.WRONG_TYPE, 1: Reason.WRONG_TYPE}


def test_digits_alone_are_no_day() -> None:
    assert times(pa.array(["1211033100000", "20240310", "12110331.05"]), UTC)[1] == dict.fromkeys(range(3), Reason.WRONG_TYPE)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_pieces_end_with_lines_whatever_ends_those(end: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    content = end.join(b"line %d" % n for n in range(100))
    monkeypatch.setattr(columns, "PIECE_BYTES", 64)
    found = list(lines(io.BytesIO(content)))
    assert b"".join(found) == content
    assert len(found) > 10
    assert all(block.endswith(end) for block in found[:-1])
