"""NMEA 0183: RMC sentences anywhere among others and among binary bytes, void ones, broken ones, and files that never say the day."""

from datetime import UTC, datetime
from functools import reduce
from operator import xor
from pathlib import Path

import pynmea2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.replay.files import InputFile
from jobs.replay.fixes import Reason
from jobs.replay.readers.nmea import recognises
from tests.jobs.replay.inputs import DATA, Found, write

TEN_FIFTEEN = 1_710_065_700_000  # 2024-03-10T10:15:00Z
NOWHERE = (None, None)
GGA = "$GPGGA,101500.00,4808.00,N,01130.00,E,1,05,1.6,209.8,M,-34.2,M,,"
VOID = "$GPRMC,101500.00,V,,,,,,,100324,,,N*7C"
ALL_ZERO = "$GPRMC,101501.00,A,0000.0000,N,00000.0000,E,0.0,0.0,100324,,,A*5E"


def rmc(
    clock: str = "101500.00",
    place: str = "4830.00,N,01115.00,E",
    day: str = "100324",
    status: str = "A",
    talker: str = "GP",
    mode: str = "A",
) -> str:
    body = f"{talker}RMC,{clock},{status},{place},0.0,0.0,{day},,,{mode}"
    return f"${body}*{reduce(xor, body.encode()):02X}"


def log(folder: Path, *lines: str | bytes, end: bytes = b"\r\n") -> Found:
    content = b"".join((line.encode() if isinstance(line, str) else line) + end for line in lines)
    return Found(write(folder, "boat.log", content), format_="nmea")


def test_rmc_of_every_talker_is_a_fix_in_its_line_and_all_others_are_counted(tmp_path: Path) -> None:
    others = [GGA, "$GPGSV,1,1,00*79", "$GNZDA,101500,10,03,2024,00,00", "!AIVDM,1,1,,A,15M67F,0*00", "$PUBX,00,1", "$PSRF103,05"]
    found = log(tmp_path, "# a comment", "", *others, *(rmc(talker=talker) for talker in ("GP", "GN", "GL", "II", "BD")))
    assert found.fixes == [{"user": "boat", "t_ms": TEN_FIFTEEN, "lat": 48.5, "lon": 11.25, "index": index} for index in range(9, 14)]
    assert (found.refused.total(), found.other) == (0, 6)


def test_void_is_no_place_and_all_zero_is_passed_on_as_it_is(tmp_path: Path) -> None:  # A23, A2
    found = log(tmp_path, rmc(), VOID, ALL_ZERO, rmc(status="V"), rmc(mode="N"), rmc(place=",,,"), rmc(status=""))
    assert found.places == [(48.5, 11.25), NOWHERE, (0.0, 0.0), *[NOWHERE] * 4]
    assert found.times == [TEN_FIFTEEN, TEN_FIFTEEN, TEN_FIFTEEN + 1000, *[TEN_FIFTEEN] * 4]


@pytest.mark.parametrize(
    "place",
    [
        "4830.00,,01115.00,E",
        "4830.00,X,01115.00,E",
        "4830.00,N,01115.00,N",
        ",N,01115.00,E",
        "4830.00,N,,E",
        "4860.00,N,01115.00,E",
        "4830.00,N,01199.00,E",
        "nan,N,01115.00,E",
        "inf,N,1e9,E",
        "-4830.00,N,01115.00,E",
        "30.00,N,15.00,E",
        "48 30.00,N,01115.00,E",
    ],
)
def test_half_or_broken_places_leave_a_presence(tmp_path: Path, place: str) -> None:  # A21
    found = log(tmp_path, rmc(place=place))
    assert (found.places, found.times) == ([NOWHERE], [TEN_FIFTEEN])


def test_hemispheres_are_signs_and_degrees_out_of_range_are_passed_on(tmp_path: Path) -> None:  # A3
    found = log(tmp_path, rmc(place="3330.00,S,15115.00,W"), rmc(place="9930.00,N,27045.00,W"))
    assert found.places == [(-33.5, -151.25), (99.5, -270.75)]


def test_without_date_or_time_it_is_refused(tmp_path: Path) -> None:
    found = log(tmp_path, rmc(clock=""), rmc(day=""), "$GPRMC,101500.00,A,4830.00,N,01115.00,E", "$GPRMC,")
    assert (found.refused, found.at, found.fixes) == ({Reason.MISSING_FIELD: 4}, [1, 2, 3, 4], [])


@pytest.mark.parametrize("clock", ["241500", "106000", "101561", "1015", "10:15:00", "101500.x", "101500e1", "-01500"])
def test_a_time_that_no_clock_shows_is_refused(tmp_path: Path, clock: str) -> None:
    assert log(tmp_path, rmc(clock=clock)).refused == {Reason.WRONG_TYPE: 1}


@pytest.mark.parametrize("day", ["310224", "101324", "000324", "10324", "1003240", "10032024", "10/3/4", "nan"])
def test_a_day_that_no_calendar_has_is_refused(tmp_path: Path, day: str) -> None:
    assert log(tmp_path, rmc(day=day)).refused == {Reason.WRONG_TYPE: 1}


@pytest.mark.parametrize(("year", "whole"), [("80", 1980), ("99", 1999), ("00", 2000), ("24", 2024), ("69", 2069), ("79", 2079)])
def test_the_century_is_that_of_gps(tmp_path: Path, year: str, whole: int) -> None:
    moment = datetime(whole, 3, 10, 10, 15, tzinfo=UTC)
    assert log(tmp_path, rmc(day=f"1003{year}")).times == [int(moment.timestamp()) * 1000]


def test_rolled_over_weeks_are_passed_on(tmp_path: Path) -> None:  # A17
    assert log(tmp_path, rmc(day="250704")).times == [TEN_FIFTEEN - 7168 * 86_400_000]


def test_fractions_of_seconds_are_cut_to_milliseconds(tmp_path: Path) -> None:  # A19
    clocks = ["101500.200", "101500.7", "101500.2999", "101500.", "101500", "101460", "101500.29", "101500.001"]
    assert [time - TEN_FIFTEEN for time in log(tmp_path, *(rmc(clock=clock) for clock in clocks)).times] == [200, 700, 299, 0, 0, 0, 290, 1]


def test_a_wrong_checksum_is_refused_and_a_missing_one_accepted(tmp_path: Path) -> None:
    plain = rmc().split("*")[0]
    found = log(tmp_path, plain, f"{plain}*00", f"{plain}*GG", f"{plain}*", f"{rmc()}x")
    assert found.times == [TEN_FIFTEEN]
    assert (found.refused, found.at) == ({Reason.MALFORMED: 4}, [2, 3, 4, 5])


@pytest.mark.parametrize(
    "sentence", [GGA, "$GNGLL,4830.00,N,01115.00,E,101500.00,A,A", "$GNGNS,101500.00,4830.00,N,01115.00,E,A,1,1,1,1,,"]
)
def test_places_of_a_file_that_never_says_the_day_are_refused(tmp_path: Path, sentence: str) -> None:
    found = log(tmp_path, "$GPGSA,A,3", sentence, sentence)
    assert (found.fixes, found.refused, found.at, found.other) == ([], {Reason.MISSING_FIELD: 2}, [2, 3], 1)
    assert log(tmp_path, sentence, sentence, rmc()).counts == (1, 0, 0, 2)


@pytest.mark.parametrize("end", [b"\r\n", b"\n", b"\r"])
def test_lines_may_end_in_three_ways_and_the_last_not_at_all(tmp_path: Path, end: bytes) -> None:
    lines = [rmc().encode(), GGA.encode(), rmc().encode()]
    found = Found(write(tmp_path, "boat.log", end.join(lines)))
    assert ([fix["index"] for fix in found.fixes], found.other) == ([1, 3], 1)


def test_a_sentence_may_begin_behind_binary_bytes_or_another_sentence(tmp_path: Path) -> None:
    noise = b"\xb5b\x01\x07\\\x00$\x90\xff\x00"
    found = log(
        tmp_path, noise + rmc().encode(), rmc() + rmc(), b"10:15:00 " + rmc().encode(), b"$GPR" + rmc().encode(), rmc().encode() + noise
    )
    assert [fix["index"] for fix in found.fixes] == [1, 2, 2, 3, 4, 5]
    assert (found.refused.total(), found.other) == (0, 0)


def test_an_endless_sentence_is_refused(tmp_path: Path) -> None:
    found = log(tmp_path, "$GPRMC," + "1" * 5_000_000, "$" * 1_000_000, "$GPRMC," * 100_000, rmc())
    assert len(found.fixes) == 1
    assert found.refused == {Reason.MALFORMED: 1, Reason.MISSING_FIELD: 100_000}


def test_a_file_may_have_no_fix(tmp_path: Path) -> None:  # A20
    assert log(tmp_path).counts == log(tmp_path, "# header", "").counts == (0, 0, 0, 0)


@pytest.mark.parametrize("head", [VOID, ALL_ZERO, GGA, f"# header\n{rmc()}", f"\xb5b\x01{rmc()}", f"\ufeff{rmc()}"])
def test_is_recognised_by_a_sentence_at_the_beginning_of_a_line(tmp_path: Path, head: str) -> None:
    assert recognises(InputFile(tmp_path / "a", None, "a"), head.encode())


@pytest.mark.parametrize(
    "head",
    [
        "",
        "$",
        "GPRMC,1",
        "$PRICE,1\n",
        f'{{"raw": "{GGA}"}}',
        f"lat,lon,raw\n1,2,{GGA}\n",
        f"lat\tlon\traw\n1\t2\t{GGA}\n",
        "!AIVDM,1,1,,A,15M67F,0*00",
    ],
)
def test_a_sentence_in_a_field_of_another_format_makes_no_log(tmp_path: Path, head: str) -> None:
    assert not recognises(InputFile(tmp_path / "a.nmea", None, "a"), head.encode())


@given(
    st.integers(315_532_800_000, 3_124_223_999_999),  # of 1980 to 2068, where the centuries of pynmea2 are ours
    *(st.floats(0, limit, exclude_max=True) for limit in (90, 180)),
    st.sampled_from("NS"),
    st.sampled_from("EW"),
)
@settings(deadline=None)
def test_reads_as_pynmea2_does(tmp_path_factory: pytest.TempPathFactory, t_ms: int, lat: float, lon: float, north: str, east: str) -> None:
    moment = datetime.fromtimestamp(t_ms // 1000, UTC)
    minutes = [f"{int(value):0{width}}{(value % 1) * 59:08.5f}" for value, width in ((lat, 2), (lon, 3))]
    text = rmc(f"{moment:%H%M%S}.{t_ms % 1000:03}", f"{minutes[0]},{north},{minutes[1]},{east}", f"{moment:%d%m%y}")
    known, found = pynmea2.parse(text), log(tmp_path_factory.getbasetemp(), text)
    assert found.places == [(known.latitude, known.longitude)]
    assert found.times == [round(known.datetime.timestamp() * 1000)] == [t_ms]


@pytest.mark.skipif(not (DATA / "nmea").is_dir(), reason="the public samples are not beside this checkout")
@pytest.mark.parametrize(
    ("name", "fixes", "cut_off"), [("nmea", 154, 0), ("gp-320fw-2019-04-06-overflow.log", 20, 0), ("ublox-8.log", 72, 1)]
)
def test_samples_agree_with_pynmea2_sentence_by_sentence(name: str, fixes: int, cut_off: int) -> None:
    lines = (DATA / "nmea" / name).read_bytes().split(b"\n")
    texts = {number: line[line.rindex(b"$") :].decode() for number, line in enumerate(lines, 1) if b"RMC," in line}
    known = [pynmea2.parse(text) for text in list(texts.values())[:fixes]]
    found = Found(DATA / "nmea" / name)
    assert (len(found.fixes), found.refused.total(), len(texts)) == (fixes, cut_off, fixes + cut_off)
    assert found.places == [(sentence.latitude, sentence.longitude) for sentence in known]
    assert found.times == [round(sentence.datetime.timestamp() * 1000) for sentence in known]
    assert [*(fix["index"] for fix in found.fixes), *found.at] == list(texts)
