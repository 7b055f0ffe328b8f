"""Tables of delimited text: which columns are meant is found by name or said, never guessed; nor is a unit or a zone."""

from datetime import timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from jobs.errors import UserError
from jobs.replay.files import find_files
from jobs.replay.fixes import Mapped, ReadOptions, Reason
from jobs.replay.readers.table import recognises
from tests.jobs.replay.inputs import Found, write

NOON = "2024-03-10T12:00:00Z"
NOON_MS = 1_710_072_000_000
HEADER = "user,time,lat,lon"
NOWHERE = (None, None)


def table(folder: Path, *rows: str | bytes, header: str = HEADER, options: ReadOptions | None = None) -> Found:
    lines = [line if isinstance(line, bytes) else line.encode() for line in (header, *rows)]
    return Found(write(folder, "bea.csv", b"\n".join(lines)), options, "csv")


def is_table(folder: Path, head: str | bytes) -> bool:
    path = write(folder, "bea.csv", head)
    return recognises(find_files([path], None, "file")[0], path.read_bytes())


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_columns_have_usual_names_in_any_order_and_writing(tmp_path: Path, delimiter: str) -> None:
    header, row = ["note", "Longitude", " LAT", "Timestamp", "device_id"], ["x", "11.5", "48.1", NOON, "d1"]
    found = table(tmp_path, delimiter.join(row), header=delimiter.join(header))
    assert found.fixes == [{"user": "d1", "t_ms": NOON_MS, "lat": 48.1, "lon": 11.5, "index": 2}]
    assert found.other == 1


def test_of_several_usual_names_the_first_of_the_stated_order_counts(tmp_path: Path) -> None:
    header = "id,device,user_id,date_time,time,latitude,lat,longitude,lng"
    found = table(tmp_path, f"a,b,c,2020-01-01T00:00Z,{NOON},1,48.1,2,11.5", header=header)
    assert found.fixes == [{"user": "c", "t_ms": NOON_MS, "lat": 48.1, "lon": 11.5, "index": 2}]


def test_a_table_that_names_nobody_is_about_the_user_of_the_file(tmp_path: Path) -> None:
    assert table(tmp_path, f"{NOON},48.1,11.5", header="t,lat,lon").fixes[0]["user"] == "bea"


@pytest.mark.parametrize(
    ("header", "part"),
    [("time,lon", "lat"), ("time,lat", "lon"), ("lat,lon", "time"), ("time,lat,Lat,lon", "lat"), ("user,USER,time,lat,lon", "user")],
)
def test_what_is_missing_or_there_twice_has_to_be_said(tmp_path: Path, header: str, part: str) -> None:
    assert not is_table(tmp_path, header)
    with pytest.raises(UserError, match=f"--map {part}=NAME"):
        table(tmp_path, header=header)


def test_a_person_can_choose_between_two_columns_unless_they_have_one_name(tmp_path: Path) -> None:
    options = ReadOptions(mapped=Mapped(lat="Lat"))
    assert table(tmp_path, f"{NOON},1,48.1,2", header="time,lat,Lat,lon", options=options).places == [(48.1, 2)]
    with pytest.raises(UserError, match="different names"):
        table(tmp_path, header="time,Lat,Lat,lon", options=options)


def test_mapped_columns_go_before_usual_names(tmp_path: Path) -> None:
    mapped = Mapped(user="who", time="when", lat="y", lon="x", time_unit="s")
    row = f"u,{NOON},1,2,wendy,1710072000,48.1,11.5"
    found = table(tmp_path, row, header=f"{HEADER},who,when,y,x", options=ReadOptions(mapped=mapped))
    assert found.fixes == [{"user": "wendy", "t_ms": NOON_MS, "lat": 48.1, "lon": 11.5, "index": 2}]
    with pytest.raises(UserError, match="no column `Y`"):
        table(tmp_path, row, header=f"{HEADER},who,when,y,x", options=ReadOptions(mapped=Mapped(lat="Y")))


@pytest.mark.parametrize("head", [b"", b"\n", b"\x89PNG\r\n", '{"lat":1,"lon":2,"time":3}', "1,2,3,4", "Start Time\tEnd Time\tMode", "lat"])
def test_what_has_no_such_header_is_no_table(tmp_path: Path, head: str | bytes) -> None:
    assert not is_table(tmp_path, head)


def test_a_first_line_that_is_no_header_is_damage(tmp_path: Path) -> None:
    assert table(tmp_path, header="hello").damage == "its first line is no header of a table"
    assert table(tmp_path, header="").damage == "its first line is no header of a table"


@pytest.mark.parametrize(("unit", "number"), [("s", "1710072000.25049"), ("ms", "1710072000250"), ("us", "1710072000250999")])
def test_numbers_have_the_unit_that_is_said(tmp_path: Path, unit: str, number: str) -> None:
    options = ReadOptions(mapped=Mapped(time_unit=unit))
    assert table(tmp_path, f"u,{number},48,11", options=options).times == [NOON_MS + 250]


@pytest.mark.parametrize("numbers", [["1710072000"], ["1710072000000"], ["", "1710072000.5"], ["20240310"], ["1211033100000"]])
def test_numbers_without_a_unit_are_refused_as_a_whole(tmp_path: Path, numbers: list[str]) -> None:
    with pytest.raises(UserError, match="--time-unit"):
        table(tmp_path, *(f"u,{number},48,11" for number in numbers))


def test_one_number_among_texts_spoils_its_own_row_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.replay.readers.columns.PIECE_BYTES", 32)
    found = table(tmp_path, *[f"u,{NOON},48,11"] * 9, "u,1710072000,48,11")
    assert (len(found.fixes), found.refused, found.at) == (9, {Reason.WRONG_TYPE: 1}, [11])


def test_the_wrong_unit_makes_another_time_and_is_not_repaired(tmp_path: Path) -> None:
    options = ReadOptions(mapped=Mapped(time_unit="ms"))
    times = ["1700000000", "1700000000000", "1700000000000000"]
    assert table(tmp_path, *(f"u,{time},48,11" for time in times), options=options).times == [int(time) for time in times]


def test_texts_under_a_unit_and_numbers_as_iso_are_refused_row_by_row(tmp_path: Path) -> None:
    rows = [f"u,{NOON},48,11", "u,1710072000000,48,11"]
    found = table(tmp_path, *rows, options=ReadOptions(mapped=Mapped(time_unit="ms")))
    assert (found.times, found.refused, found.at) == ([NOON_MS], {Reason.WRONG_TYPE: 1}, [2])
    found = table(tmp_path, *rows, options=ReadOptions(mapped=Mapped(time_unit="iso")))
    assert (found.times, found.refused, found.at) == ([NOON_MS], {Reason.WRONG_TYPE: 1}, [3])
    assert not table(tmp_path, rows[1], options=ReadOptions(mapped=Mapped(time_unit="iso"))).fixes


def test_naive_times_need_a_zone_and_offsets_are_kept(tmp_path: Path) -> None:
    rows = ["u,2024-03-10T01:30:00-07:00,48,11", "u,2024-03-10 01:30:00,48,11"]
    found = table(tmp_path, *rows)
    assert (found.times, found.refused, found.at) == ([NOON_MS - 12_600_000], {Reason.TIME_ZONE_MISSING: 1}, [3])
    for zone in (timezone(timedelta(hours=-7)), ZoneInfo("America/Phoenix")):
        assert table(tmp_path, *rows, options=ReadOptions(zone=zone)).times == [NOON_MS - 12_600_000] * 2
        assert table(tmp_path, rows[1], options=ReadOptions(zone=zone)).times == [NOON_MS - 12_600_000]


def test_fractions_are_rounded_down_to_milliseconds(tmp_path: Path) -> None:
    rows = [f"u,{time},48,11" for time in (NOON.replace("Z", ".2Z"), NOON.replace("Z", ".7009999Z"), "1969-12-31T23:59:59.9999Z")]
    assert table(tmp_path, *rows).times == [NOON_MS + 200, NOON_MS + 700, -1]


def test_a_day_that_no_calendar_has_and_no_time_are_refused(tmp_path: Path) -> None:
    rows = [f"u,{time},48,11" for time in ("2024-13-01T00:00Z", "2023-02-29T00:00Z", "", "  ", "noon", "2024-03-10T12:00:60Z")]
    found = table(tmp_path, *rows)
    assert not found.fixes
    assert found.refused == {Reason.WRONG_TYPE: 4, Reason.MISSING_FIELD: 2}


@pytest.mark.parametrize("odd", ["NaN", "nan", "", "Infinity", "-inf", "true", "null", "48,1", "0x30", "1e999", "4_8", "48°", "٤٨"])
def test_what_is_no_number_is_presence_without_a_place(tmp_path: Path, odd: str) -> None:
    rows = [f'u,{NOON},"{odd}",11', f'u,{NOON},48,"{odd}"', f"u,{NOON},48,11"]
    found = table(tmp_path, *rows)
    assert (found.places, found.counts) == ([NOWHERE, NOWHERE, (48, 11)], (3, 2, 0, 1))


def test_numbers_out_of_range_zeros_and_equal_fixes_are_passed_on_in_the_order_of_the_header(tmp_path: Path) -> None:
    places = [(12.3, -270.6), (1848.7, 1848.7), (-90.0001, 0.0), (0.0, 0.0), (39.9, 116.4), (116.4, 39.9), (116.4, 39.9)]
    assert table(tmp_path, *(f"u,{NOON},{lat},{lon}" for lat, lon in places)).places == places
    assert table(tmp_path, *(f"u,{NOON},{lon},{lat}" for lat, lon in places), header="user,time,lon,lat").places == places


def test_who_is_missing_or_no_utf_8_is_refused(tmp_path: Path) -> None:
    found = table(tmp_path, f",{NOON},1,2", b"M\xfcller," + NOON.encode() + b",1,2", f"Müller,{NOON},1,2", f"a\0b,{NOON},1,2")
    assert [fix["user"] for fix in found.fixes] == ["Müller", "a\0b"]
    assert (found.refused, found.at) == ({Reason.MISSING_FIELD: 1, Reason.WRONG_TYPE: 1}, [2, 3])


def test_what_is_in_other_columns_does_not_matter(tmp_path: Path) -> None:
    rows = [f'u,{NOON},1,2,"a, ""b"""', b"u," + NOON.encode() + b",1,2,M\xfcller", f"u,{NOON},1,2,\0"]
    assert table(tmp_path, *rows, header=f"{HEADER},note").counts == (3, 0, 0, 1)


def test_a_line_break_within_quotes_ends_the_line_and_a_stray_quote_spoils_no_other(tmp_path: Path) -> None:
    rows = [f'u,{NOON},1,2,"one', 'two"', f'u,{NOON},"3,4,stray', f"u,{NOON},5,6,"]
    found = table(tmp_path, *rows, header=f"{HEADER},note")
    assert found.places == [(1, 2), (5, 6)]
    assert (found.refused, found.at) == ({Reason.MALFORMED: 2}, [3, 4])


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_in_any_way_and_a_mark_of_utf_8_is_no_text(tmp_path: Path, end: str) -> None:
    content = "\ufeff" + end.join([HEADER, f"u,{NOON},48,11", "", f"u,{NOON},49,12"])
    assert Found(write(tmp_path, "bea.csv", content)).fixes == [
        {"user": "u", "t_ms": NOON_MS, "lat": 48, "lon": 11, "index": 2},
        {"user": "u", "t_ms": NOON_MS, "lat": 49, "lon": 12, "index": 4},
    ]


def test_a_table_in_utf_16_is_none(tmp_path: Path) -> None:
    assert not is_table(tmp_path, HEADER.encode("utf-16"))
