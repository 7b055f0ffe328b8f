"""GPX: what is a fix, what is refused, whose time it is, and what hostile files cannot do; gpxpy is the oracle."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import gpxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.replay.files import InputFile
from jobs.replay.fixes import BATCH, ReadOptions, Reason
from jobs.replay.readers.gpx import read, recognises
from tests.jobs.replay.inputs import DATA, Found, write

HEADER = '<?xml version="1.0" encoding="UTF-8"?>\n<gpx version="1.1" creator="test" xmlns="http://www.topografix.com/GPX/1/1">'
GPX_1_0 = HEADER.replace("1.1", "1.0").replace("GPX/1/1", "GPX/1/0")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_704_067_200_000
FOUR_DEEP = "".join(f'<!ENTITY {name} "{f"&{before};" * 40}">' for before, name in zip("abcdef", "bcdefg", strict=True))
BOMB = f'<!DOCTYPE gpx [<!ENTITY a "{"1" * 1000}">{FOUR_DEEP}]>'


def point(time: str | None = "2024-01-01T00:00:00Z", lat: str | None = "48.5", lon: str | None = "11.25", more: str = "") -> str:
    places = "".join(f' {name}="{value}"' for name, value in (("lat", lat), ("lon", lon)) if value is not None)
    return f"<trkpt{places}>{more}{'' if time is None else f'<time>{time}</time>'}</trkpt>"


def track(*points: str, header: str = HEADER) -> str:
    return f"{header}<trk><trkseg>{''.join(points)}</trkseg></trk></gpx>"


def milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize("header", [HEADER, GPX_1_0, "<gpx>"])
def test_points_of_tracks_are_fixes_of_both_versions_and_without_a_namespace(tmp_path: Path, header: str) -> None:
    found = Found(write(tmp_path, "jo.gpx", track(point(), point("2024-01-01T00:00:01Z", "-33.5", "151"), header=header)))
    assert found.format == "gpx"
    assert found.fixes == [
        {"user": "jo", "t_ms": SECOND, "lat": 48.5, "lon": 11.25, "index": 1},
        {"user": "jo", "t_ms": SECOND + 1000, "lat": -33.5, "lon": 151.0, "index": 2},
    ]
    assert (found.refused.total(), found.other, found.damage) == (0, 0, None)


def test_a_prefix_is_read_like_none(tmp_path: Path) -> None:
    text = track(point()).replace("<", "<x:").replace("<x:/", "</x:").replace("<x:?", "<?").replace("xmlns=", "xmlns:x=")
    assert Found(write(tmp_path, "a.gpx", text)).counts == (1, 0, 0, 0)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "iso-8859-1"])
def test_encodings_and_byte_order_marks(tmp_path: Path, encoding: str) -> None:
    declared = {"utf-8-sig": "UTF-8", "utf-16-le": "UTF-16LE"}.get(encoding, encoding)
    text = track("<name>Übung</name>", point()).replace("UTF-8", declared)
    assert Found(write(tmp_path, "a.gpx", text.encode(encoding))).places == [(48.5, 11.25)]


def test_waypoints_and_routes_are_no_presence_of_anybody(tmp_path: Path) -> None:
    planned = [f'<{tag} lat="1" lon="2"><time>2024-01-01T00:00:00Z</time></{tag}>' for tag in ("wpt", "rtept")]
    found = Found(write(tmp_path, "a.gpx", track(point()).replace("</gpx>", f"{planned[0]}<rte>{planned[1] * 2}</rte></gpx>")))
    assert found.counts == (1, 0, 0, 3)


def test_a_point_without_a_time_is_refused_and_the_one_of_the_extensions_is_not_taken(tmp_path: Path) -> None:
    elsewhere = "<extensions><time>2024-01-01T00:00:00Z</time></extensions>"
    found = Found(write(tmp_path, "a.gpx", track(point(None), point(""), point(" \n"), point(None, more=elsewhere), point())))
    assert found.refused == {Reason.MISSING_FIELD: 4}
    assert (found.at, [fix["index"] for fix in found.fixes]) == ([1, 2, 3, 4], [5])


@pytest.mark.parametrize("time", ["yesterday", "2024-13-01T00:00:00Z", "2024-02-30T00:00:00Z", "2024-01-01T25:00:00Z", "1704067200"])
def test_a_time_that_no_calendar_has_is_refused(tmp_path: Path, time: str) -> None:
    assert Found(write(tmp_path, "a.gpx", track(point(time)))).refused == {Reason.WRONG_TYPE: 1}


def test_an_offset_is_kept_and_a_naive_time_needs_a_zone(tmp_path: Path) -> None:  # A18
    path = write(tmp_path, "a.gpx", track(point("2024-03-10T01:30:00-07:00"), point("2024-03-10T01:30:00")))
    undeclared = Found(path)
    assert undeclared.times == [milliseconds("2024-03-10T08:30:00Z")]
    assert (undeclared.refused, undeclared.at) == ({Reason.TIME_ZONE_MISSING: 1}, [2])
    for zone in (timezone(timedelta(hours=-7)), ZoneInfo("America/Phoenix")):
        assert Found(path, ReadOptions(zone=zone)).times == [milliseconds("2024-03-10T08:30:00Z")] * 2


def test_fractions_of_seconds_stay_apart(tmp_path: Path) -> None:  # A19
    times = ["2024-01-01T00:00:00.200Z", "2024-01-01T00:00:00.700Z", "2024-01-01T00:00:00.7009Z", "1969-12-31T23:59:59.9995Z"]
    found = Found(write(tmp_path, "a.gpx", track(*map(point, times))))
    assert found.times == [SECOND + 200, SECOND + 700, SECOND + 700, -1]


@pytest.mark.parametrize("time", ["1901-12-13T20:45:52Z", "1970-01-01T00:00:00Z", "2004-09-24T12:00:00Z", "2999-01-01T00:00:00Z"])
def test_implausible_years_and_rolled_over_weeks_are_passed_on(tmp_path: Path, time: str) -> None:  # A17
    assert Found(write(tmp_path, "a.gpx", track(point(time)))).times == [milliseconds(time)]


def test_places_out_of_range_are_passed_on_as_they_are(tmp_path: Path) -> None:  # A1, A3
    places = [(12.3, -270.6), (1848.7, 1848.7), (-90.0001, 0.0), (0.0, 0.0)]
    text = track(*(point(lat=str(lat), lon=str(lon)) for lat, lon in places))
    assert Found(write(tmp_path, "a.gpx", text)).places == places


@pytest.mark.parametrize("value", ["NaN", "nan", "Infinity", "-inf", "1e999", "", "true", "null", "48,5", "4_8", "48.5N", None])
def test_what_is_no_number_leaves_a_presence_without_a_place(tmp_path: Path, value: str | None) -> None:  # A21
    found = Found(write(tmp_path, "a.gpx", track(point(lat=value), point(lon=value), point())))
    assert found.places == [(None, None), (None, None), (48.5, 11.25)]


@pytest.mark.parametrize("count", [0, 1])
def test_a_track_may_have_no_point_or_one(tmp_path: Path, count: int) -> None:  # A20
    found = Found(write(tmp_path, "a.gpx", track(*[point()] * count)))
    assert (found.counts, found.damage) == ((count, 0, 0, 0), None)


def test_batches_are_bounded_and_lose_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "a.gpx", track(point() * (BATCH + 10)))
    batches = list(read(InputFile(path, None, "a"), ReadOptions()))
    assert [len(batch.fixes) for batch in batches] == [BATCH, 10]
    assert np.concatenate([batch.fixes["index"].to_numpy() for batch in batches]).tolist() == list(range(1, BATCH + 11))


def test_a_file_cut_anywhere_gives_every_whole_point_before_the_cut(tmp_path: Path) -> None:
    whole = track(point(), point("2024-01-01T00:00:01Z", more="<ele>1</ele>"), point(None)).encode()
    for cut in range(len(HEADER), len(whole)):
        found = Found(write(tmp_path, "a.gpx", whole[:cut]), format_="gpx")
        assert len(found.fixes) + found.refused.total() == whole[:cut].count(b"</trkpt>"), cut
        assert (found.damage is None) == whole[:cut].endswith(b"</gpx>")


@pytest.mark.parametrize("broken", ["\0", "<trkpt", "&nobody;", "]]></gpx>", "<a>" * 100_000, f'<trkpt lat="{"1" * 20_000_000}"/>'])
def test_what_is_broken_ends_the_file_after_what_came_before(tmp_path: Path, broken: str) -> None:
    found = Found(write(tmp_path, "a.gpx", f"<gpx><trk><trkseg>{point()}{broken}{point()}"))
    assert found.places[0] == (48.5, 11.25)
    assert found.damage is not None
    assert "48.5" not in found.damage


@pytest.mark.parametrize("where", [point("&g;"), point(lat="&g;"), f"<name>&g;</name>{point()}"])
def test_entities_cannot_fill_the_memory(tmp_path: Path, where: str) -> None:
    found = Found(write(tmp_path, "a.gpx", f"{BOMB}<gpx><trk><trkseg>{point()}{where}</trkseg></trk></gpx>"), format_="gpx")
    assert found.places[:1] == [(48.5, 11.25)]
    assert found.damage is not None or len(found.fixes) + found.refused.total() > 1


def test_files_beside_it_are_not_fetched(tmp_path: Path) -> None:
    secret = write(tmp_path, "time.txt", "2024-01-01T00:00:00Z")
    document = f'<!DOCTYPE gpx [<!ENTITY t SYSTEM "{secret.as_uri()}">]>{track(point("&t;"), header="<gpx>")}'
    found = Found(write(tmp_path, "a.gpx", document))
    assert (found.fixes, found.refused) == ([], {Reason.MISSING_FIELD: 1})


@pytest.mark.parametrize("head", [b"", b"\0\xff", b"gpx", b"<html/>", b"<gpxx/>", b"<fcd-export/>", b'{"gpx": 1}', b"lat,lon\n1,2", b"\n"])
def test_other_files_are_not_recognised(tmp_path: Path, head: bytes) -> None:
    assert not recognises(InputFile(tmp_path / "a.gpx", None, "a"), head)


def test_a_head_that_ends_anywhere_is_recognised_by_its_outermost_element(tmp_path: Path) -> None:
    file = InputFile(tmp_path / "a.xml", None, "a")
    assert all(recognises(file, track(point()).encode()[:end]) for end in (len(HEADER), len(HEADER) + 30))


@given(st.lists(st.tuples(st.floats(-90, 90), st.floats(-180, 180), st.integers(-(10**12), 4 * 10**12)), max_size=5))
@settings(deadline=None)
def test_reads_as_gpxpy_does(tmp_path_factory: pytest.TempPathFactory, fixes: list[tuple[float, float, int]]) -> None:
    moments = [(EPOCH + timedelta(milliseconds=t_ms)).isoformat(timespec="milliseconds") for _, _, t_ms in fixes]
    text = track(*(point(moment, repr(lat), repr(lon)) for moment, (lat, lon, _) in zip(moments, fixes, strict=True)))
    found = Found(write(tmp_path_factory.getbasetemp(), "oracle.gpx", text))
    points = list(gpxpy.parse(text).walk(only_points=True))
    assert found.places == [(known.latitude, known.longitude) for known in points]
    assert found.times == [round((known.time - EPOCH) / timedelta(milliseconds=1)) for known in points]


@pytest.mark.skipif(not (DATA / "gpx").is_dir(), reason="the public samples are not beside this checkout")
def test_the_sample_with_fractions_keeps_them() -> None:
    assert [time % 1000 for time in Found(DATA / "gpx" / "gpx_subsecond-sample.gpx").times] == [200, 400, 600, 800, 0]
