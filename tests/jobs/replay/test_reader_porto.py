"""Porto taxi trips: one row is many fixes, fifteen seconds apart."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.replay.fixes import Reason
from jobs.replay.readers import porto
from tests.jobs.replay.inputs import DATA, Found, write

HEADER = '"TRIP_ID","CALL_TYPE","ORIGIN_CALL","ORIGIN_STAND","TAXI_ID","TIMESTAMP","DAY_TYPE","MISSING_DATA","POLYLINE"\n'
BEGIN, BEGIN_MS = "1376523546", 1_376_523_546_000
NOWHERE = (None, None)


def trip(line: str, taxi: str = "20000376", begin: str = BEGIN, missing: str = "False") -> str:
    return f'"1","A","36157","","{taxi}","{begin}","A","{missing}","{line}"\n'


def trips(folder: Path, *rows: str, header: str = HEADER) -> Found:
    return Found(write(folder, "some.csv", header + "".join(rows)))


def test_a_trip_is_a_fix_every_fifteen_seconds_all_with_the_line_of_the_trip(tmp_path: Path) -> None:
    found = trips(tmp_path, trip("[[-8.64,41.17],[-8.65,41.18],[-8.65,41.18]]"), trip("[[-8.6,41.1]]", taxi="2", missing="True"))
    assert found.format == "porto"
    assert [tuple(fix.values()) for fix in found.fixes] == [
        ("porto-20000376", BEGIN_MS, 41.17, -8.64, 2),
        ("porto-20000376", BEGIN_MS + 15_000, 41.18, -8.65, 2),
        ("porto-20000376", BEGIN_MS + 30_000, 41.18, -8.65, 2),
        ("porto-2", BEGIN_MS, 41.1, -8.6, 3),
    ]
    assert found.counts == (4, 0, 0, 1)


def test_a_header_without_quotes_is_known_too(tmp_path: Path) -> None:
    assert trips(tmp_path, trip("[[-8.6,41.1]]"), header=HEADER.replace('"', "")).format == "porto"


def test_trips_without_places_are_left_out_and_broken_ones_refused(tmp_path: Path) -> None:
    found = trips(
        tmp_path,
        trip("[]"),
        trip(" [ ] "),
        trip("[[-8.6,41.1],[-8"),
        trip("{}"),
        trip(""),
        trip("[[-8.6,41.1]]", begin="then"),
        trip("[[-8.6,41.1]]", begin=""),
        trip("[[-8.6,41.1]]", taxi=""),
        '"1","2"\n',
        trip("[[-8.6,41.1]]"),
    )
    assert found.counts == (1, 0, 7, 3)
    assert found.refused == {Reason.MALFORMED: 4, Reason.WRONG_TYPE: 1, Reason.MISSING_FIELD: 2}
    assert found.at == [4, 5, 6, 7, 8, 9, 10]
    assert found.fixes[0]["index"] == 11


def test_a_point_that_is_none_is_presence_without_a_place(tmp_path: Path) -> None:
    odd = ["[]", "[1]", "[1,2,3]", "null", "[null,1]", "[true,1]", '[""1"",2]', "7", "[1e400,1]", "[[1,2],1]", "[NaN,1]", "[1,-Infinity]"]
    found = trips(tmp_path, trip(f"[[-8.6,41.1],{','.join(odd)},[-8.6,-270.5]]"))
    assert found.places == [(41.1, -8.6), *[NOWHERE] * len(odd), (-270.5, -8.6)]
    assert found.times == [BEGIN_MS + 15_000 * n for n in range(len(odd) + 2)]
    assert found.refused.total() == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.lists(st.lists(st.floats(-180, 180) | st.integers(-99, 99), min_size=2, max_size=2), max_size=4)
        | st.recursive(st.none() | st.floats() | st.text(max_size=2), st.lists, max_leaves=6),
        max_size=5,
    )
)
def test_lists_mean_the_same_however_they_are_read(tmp_path: Path, lists: list[Any]) -> None:
    rows = [trip(json.dumps(points).replace('"', '""')) for points in lists]
    quickly = trips(tmp_path, *rows)
    with pytest.MonkeyPatch.context() as patch:
        for pattern in ("PLAIN", "EMPTY"):
            patch.setattr(porto, pattern, "^never$")
        slowly = trips(tmp_path, *rows)
    assert quickly.fixes == slowly.fixes
    assert (quickly.refused, quickly.other) == (slowly.refused, slowly.other)
    assert len({fix["index"] for fix in quickly.fixes}) + quickly.refused.total() + quickly.other == len(lists) + 1


def test_a_polyline_of_megabytes_is_read_and_one_beyond_the_longest_line_ends_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = trip(f"[{','.join(['[-8.648613,41.178474]'] * 150_000)}]")
    assert len(long) > 3_000_000
    found = trips(tmp_path, trip("[[-8.6,41.1]]"), long, trip("[[-8.6,41.1]]"))
    assert found.counts == (150_002, 0, 0, 1)
    assert found.times[-2] == BEGIN_MS + 15_000 * 149_999
    monkeypatch.setattr("jobs.replay.readers.columns.PIECE_BYTES", 1 << 16)
    monkeypatch.setattr("jobs.replay.readers.columns.MAX_LINE_BYTES", 1 << 20)
    found = trips(tmp_path, trip("[[-8.6,41.1]]"), long, trip("[[-8.6,41.1]]"))
    assert (len(found.fixes), found.damage) == (1, "one of its lines is longer than 32 MB")


@pytest.mark.parametrize("line", ["[" * 100_000, "[" * 500 + "]" * 500, "[[]," + "[1,1]," * 400_000 + "[1,1]]"])
def test_hostile_lists_are_refused(tmp_path: Path, line: str) -> None:
    found = trips(tmp_path, trip(line), trip("[[-8.6,41.1]]"))
    assert found.places[-1] == (41.1, -8.6)
    assert found.refused == {Reason.MALFORMED: 1} or found.places == [NOWHERE, (41.1, -8.6)]


def test_the_name_of_a_taxi_is_short_since_it_is_repeated_for_each_place(tmp_path: Path) -> None:
    found = trips(tmp_path, trip(f"[{'[1,1],' * 100_000}[1,1]]", taxi="7" * 1_000_000), trip("[[-8.6,41.1]]"))
    assert (len(found.fixes), found.refused) == (1, {Reason.USER_TOO_LONG: 1})


@pytest.mark.skipif(not (DATA / "porto").is_dir(), reason="the Porto sample is not beside this checkout")
def test_the_public_trips_agree_with_csv_and_json() -> None:
    path = DATA / "porto/porto_native_155trips.csv"
    expected = []
    with path.open(newline="") as content:
        for line, row in enumerate(csv.DictReader(content), 2):
            for step, (lon, lat) in enumerate(json.loads(row["POLYLINE"])):
                expected.append((f"porto-{row['TAXI_ID']}", (int(row["TIMESTAMP"]) + 15 * step) * 1000, lat, lon, line))
    assert len(expected) == 5_421
    assert [tuple(fix.values()) for fix in Found(path).fixes] == expected
