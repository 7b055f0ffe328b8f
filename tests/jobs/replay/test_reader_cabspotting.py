"""Cabspotting taxis: a table with milliseconds, and the original files with seconds and a name that says who."""

import gzip
from pathlib import Path

import pytest

from jobs.replay.fixes import Reason
from tests.jobs.replay.inputs import DATA, Found, write

HEADER = "lat,lng,time,id\n"
ROW = "37.75153,-122.39447,1211033530000,abboip\n"
LINE = "37.75153 -122.39447 0 1211033530\n"
FIX = {"user": "cabspotting-abboip", "t_ms": 1_211_033_530_000, "lat": 37.75153, "lon": -122.39447}


def test_the_table_counts_milliseconds_and_the_original_seconds(tmp_path: Path) -> None:
    assert Found(write(tmp_path, "any.csv", HEADER + ROW)).fixes == [FIX | {"index": 2}]
    assert Found(write(tmp_path, "new_abboip.txt", LINE)).fixes == [FIX | {"index": 1}]


def test_lines_under_another_name_say_nobody_and_are_not_recognised(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="not recognised"):
        Found(write(tmp_path, "abboip.txt", LINE))


def test_a_table_with_other_columns_is_another_format(tmp_path: Path) -> None:
    path = write(tmp_path, "any.csv", "lat,lng,time,id,speed\n37.75153,-122.39447,2008-05-17T14:12:10Z,abboip,3\n")
    assert Found(path).format == "csv"


def test_bad_rows_are_refused_and_bad_places_are_none(tmp_path: Path) -> None:
    rows = [ROW, "nan,-122.39447,1211033530000,abboip\n", "1,2,,abboip\n", "1,2,then,abboip\n", "1,2,1211033530000,\n", "1,2\n"]
    found = Found(write(tmp_path, "any.csv", HEADER + "".join(rows)))
    assert found.places == [(37.75153, -122.39447), (None, None)]
    assert found.refused == {Reason.MISSING_FIELD: 2, Reason.WRONG_TYPE: 1, Reason.MALFORMED: 1}
    assert found.at == [4, 5, 6, 7]
    found = Found(write(tmp_path, "new_abboip.txt", LINE + LINE.replace(" 0 ", " ") + LINE.replace("1211033530", "x")))
    assert (len(found.fixes), found.refused) == (1, {Reason.MALFORMED: 1, Reason.WRONG_TYPE: 1})


@pytest.mark.skipif(not (DATA / "cabspotting").is_dir(), reason="the Cabspotting samples are not beside this checkout")
def test_a_public_taxi_reads_the_same_from_the_original_form(tmp_path: Path) -> None:
    sample = DATA / "cabspotting/ickguwa.csv.gz"
    table = Found(sample)
    assert table.fixes[-1] == {
        "user": "cabspotting-ickguwa",
        "t_ms": 1_213_035_841_000,
        "lat": 37.78123,
        "lon": -122.49237,
        "index": 23_472,
    }
    rows = [row.split(",") for row in gzip.decompress(sample.read_bytes()).decode().splitlines()[1:]]
    original = Found(write(tmp_path, "new_ickguwa.txt", "".join(f"{lat} {lon} 1 {ms[:-3]}\n" for lat, lon, ms, _ in rows)))
    assert original.format == "cabspotting"
    assert [fix | {"index": fix["index"] + 1} for fix in original.fixes] == table.fixes
