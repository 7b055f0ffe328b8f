"""GeoLife tracks: the line, the user's folder and GMT."""

from pathlib import Path

import pytest

from jobs.replay.fixes import Reason
from tests.jobs.replay.inputs import DATA, Found, write

HEADER = ["Geolife trajectory", "WGS 84", "Altitude is in Feet", "Reserved 3", "0,2,255,My Track,0,0,2,8421376", "0"]
LINE = "39.984702,116.318417,0,492,39744.1201851852,2008-10-23,02:53:04"
T_MS = 1_224_730_384_000  # 2008-10-23T02:53:04Z


def track(folder: Path, *lines: str, end: str = "\r\n", name: str = "geolife/007/Trajectory/20081023025304.plt") -> Found:
    return Found(write(folder, name, "".join(f"{line}{end}" for line in (*HEADER, *lines))), format_="geolife")


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r"])
def test_lines_begin_behind_the_header_and_are_numbered_from_the_first_of_the_file(tmp_path: Path, end: str) -> None:
    found = track(tmp_path, LINE, LINE.replace("02:53:04", "02:53:10"), end=end)
    assert found.fixes == [
        {"user": "geolife-007", "t_ms": T_MS, "lat": 39.984702, "lon": 116.318417, "index": 7},
        {"user": "geolife-007", "t_ms": T_MS + 6_000, "lat": 39.984702, "lon": 116.318417, "index": 8},
    ]
    assert found.counts == (2, 0, 0, 6)


def test_the_user_is_the_folder_above_the_track_with_or_without_trajectory(tmp_path: Path) -> None:
    assert track(tmp_path, LINE, name="a/Trajectory/x.plt").fixes[0]["user"] == "geolife-a"
    assert track(tmp_path, LINE, name="a/b/x.plt").fixes[0]["user"] == "geolife-b"


def test_altitude_has_no_say_and_equal_fixes_stay(tmp_path: Path) -> None:
    found = track(tmp_path, LINE, LINE.replace("492", "-777"), LINE.replace("492", ""), LINE)
    assert found.times == [T_MS] * 4
    assert found.places == [(39.984702, 116.318417)] * 4


def test_bad_lines_are_refused_and_bad_places_are_none(tmp_path: Path) -> None:
    found = track(
        tmp_path,
        LINE,
        LINE.replace("2008-10-23", "2008-13-23"),
        LINE + ",1",
        LINE[:20],
        "",
        LINE.replace("39.984702", "nan"),
        LINE.replace("39.984702", "400.1666"),
        LINE.replace("02:53:04", ""),
    )
    assert found.refused == {Reason.WRONG_TYPE: 2, Reason.MALFORMED: 2}
    assert found.at == [8, 9, 10, 14]
    assert found.places == [(39.984702, 116.318417), (None, None), (400.1666, 116.318417)]
    assert found.other == 7


def test_a_header_alone_and_a_part_of_one_hold_nothing(tmp_path: Path) -> None:
    assert track(tmp_path).counts == (0, 0, 0, 6)
    assert Found(write(tmp_path, "a.plt", "Geolife trajectory\nWGS 84")).counts == (0, 0, 0, 2)


@pytest.mark.skipif(not (DATA / "geolife").is_dir(), reason="the GeoLife samples are not beside this checkout")
def test_a_public_track_begins_and_ends_as_its_text_says() -> None:
    found = Found(DATA / "geolife/003/Trajectory/20081023175854.plt")
    assert found.fixes[0] == {"user": "geolife-003", "t_ms": 1_224_784_734_000, "lat": 39.999844, "lon": 116.326752, "index": 7}
    assert found.fixes[-1]["t_ms"] == 1_224_785_789_000  # 18:16:29
    assert found.places[-1] == (40.007738, 116.318767)
