"""T-Drive taxis: longitude comes first, clocks are China's, and rows that repeat stay."""

from pathlib import Path

import pytest

from jobs.replay.fixes import ReadOptions, Reason
from tests.jobs.replay.inputs import DATA, Found, write

LINE = "1,2008-02-02 15:36:08,116.51172,39.92123"
T_MS = 1_201_937_768_000  # 2008-02-02T07:36:08Z
PLACE = (39.92123, 116.51172)


def taxi(folder: Path, *lines: str, options: ReadOptions | None = None) -> Found:
    return Found(write(folder, "1.txt", "\n".join(lines)), options, "tdrive")


def test_a_line_is_a_fix_of_its_taxi_in_chinas_time(tmp_path: Path) -> None:
    assert taxi(tmp_path, LINE).fixes == [{"user": "tdrive-1", "t_ms": T_MS, "lat": PLACE[0], "lon": PLACE[1], "index": 1}]


def test_rows_that_repeat_stay(tmp_path: Path) -> None:
    found = taxi(tmp_path, LINE, LINE, LINE)
    assert found.places == [PLACE] * 3
    assert [fix["index"] for fix in found.fixes] == [1, 2, 3]


def test_bad_lines_are_refused_and_zeros_passed_on(tmp_path: Path) -> None:
    found = taxi(tmp_path, LINE, LINE[1:], "1,2008-02-30 15:36:08,1,1", "1,,1,1", "1,2008-02-02 15:36:08,0.00000,0.00000", LINE[:-10], "")
    assert found.places == [PLACE, (0.0, 0.0)]
    assert found.refused == {Reason.MISSING_FIELD: 2, Reason.WRONG_TYPE: 1, Reason.MALFORMED: 1}
    assert found.at == [2, 3, 4, 6]


def test_a_taxi_whose_name_is_no_text_is_refused_since_two_could_look_the_same(tmp_path: Path) -> None:
    found = Found(write(tmp_path, "1.txt", f"{LINE}\n".encode() + b"\xfc" + LINE[1:].encode() + b"\n\xf6" + LINE[1:].encode()))
    assert len(found.fixes) == 1
    assert found.refused == {Reason.WRONG_TYPE: 2}
    assert found.at == [2, 3]


@pytest.mark.skipif(not (DATA / "tdrive").is_dir(), reason="the T-Drive samples are not beside this checkout")
def test_the_public_taxis_keep_their_repeated_rows() -> None:
    found = [Found(DATA / "tdrive" / name) for name in ("1.txt", "2.txt")]
    assert [len(taxi.fixes) for taxi in found] == [588, 1_674]
    assert found[1].fixes[0] == {"user": "tdrive-2", "t_ms": 1_201_930_432_000, "lat": 39.88781, "lon": 116.36422, "index": 1}
    rows = [(fix["user"], fix["t_ms"], fix["lat"], fix["lon"]) for taxi in found for fix in taxi.fixes]
    assert sum(rows.count(row) > 1 for row in set(rows)) == 95
