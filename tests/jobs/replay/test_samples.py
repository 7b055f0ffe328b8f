"""Every public sample goes through its reader, with the counts that other tools (grep, gpxpy, json) find in it."""

from pathlib import Path

import gpxpy
import pytest

from jobs.replay.files import find_files
from jobs.replay.fixes import ReadOptions
from jobs.replay.formats import recognise
from tests.jobs.replay.inputs import DATA, Found

pytestmark = pytest.mark.skipif(not (DATA / "geolife").is_dir(), reason="the public samples are not beside this checkout")

EXPECTED = {
    "cabspotting/abboip.csv.gz": ("cabspotting", 23_495, 0, 0, 1),
    "cabspotting/ickguwa.csv.gz": ("cabspotting", 23_471, 0, 0, 1),
    "gpx/Mojstrovka.gpx": ("gpx", 184, 0, 0, 0),
    "gpx/andorra_for_map_matching.gpx": ("gpx", 0, 0, 21, 0),
    "gpx/cerknicko-jezero.gpx": ("gpx", 296, 0, 0, 7),
    "gpx/cerknicko-without-times.gpx": ("gpx", 5, 0, 291, 7),
    "gpx/empty.gpx": ("gpx", 0, 0, 0, 0),
    "gpx/gpx_subsecond-sample.gpx": ("gpx", 5, 0, 0, 0),
    "gpx/lowrance-utf16-test.gpx": ("gpx", 0, 0, 0, 1),
    "gpx/track-with-empty-segment.gpx": ("gpx", 9, 0, 0, 0),
    "gpx/track-with-less-sec-time.gpx": ("gpx", 2, 0, 0, 0),
    "nmea/gp-320fw-2019-04-06-overflow.log": ("nmea", 20, 0, 0, 121),
    "nmea/nmea": ("nmea", 154, 0, 0, 740),
    "nmea/ublox-8.log": ("nmea", 72, 0, 1, 936),
    "owntracks/owntracks_demo-iphone.rec": ("owntracks", 23, 0, 0, 2),
    "porto/porto_native_155trips.csv": ("porto", 5_421, 0, 0, 1),
    "sumo_fcd/helsinki_seed42.fcd.xml.gz": ("sumo", 76_955, 0, 0, 0),
    "tdrive/1.txt": ("tdrive", 588, 0, 0, 0),
    "tdrive/2.txt": ("tdrive", 1_674, 0, 0, 0),
    "traccar/ha_core_positions.json": ("traccar", 1, 1, 0, 0),
}
GEOLIFE = {"000": 3_634, "001": 19_483, "002": 24_100, "003": 13_601, "004": 4_172, "010": 24_715}
NO_FIXES = {"density", "poi", "roads"}


@pytest.mark.parametrize("name", EXPECTED)
def test_counts_of_a_sample(name: str) -> None:
    found = Found(DATA / name, ReadOptions(start_ms=0))
    assert (found.format, *found.counts) == EXPECTED[name]
    assert found.damage is None


@pytest.mark.parametrize("user", GEOLIFE)
def test_counts_of_geolife(user: str) -> None:
    tracks = [Found(path) for path in sorted((DATA / "geolife" / user / "Trajectory").iterdir())]
    assert {track.format for track in tracks} == {"geolife"}
    assert sum(len(track.fixes) for track in tracks) == GEOLIFE[user]
    assert {fix["user"] for track in tracks for fix in track.fixes} == {f"geolife-{user}"}
    assert not any(track.refused or track.damage for track in tracks)


def test_no_sample_is_forgotten_and_what_holds_no_fixes_is_not_recognised() -> None:
    files = find_files([DATA], None, "file")
    known = {str(file.path.relative_to(DATA)) for file in files if recognise(file, file.head()) is not None}
    assert known == {*EXPECTED, *(str(file.path.relative_to(DATA)) for file in files if file.path.name.endswith(".plt"))}
    assert NO_FIXES <= {file.path.relative_to(DATA).parts[0] for file in files if str(file.path.relative_to(DATA)) not in known}


@pytest.mark.parametrize("path", sorted((DATA / "gpx").glob("*.gpx")), ids=lambda path: path.name)
def test_gpx_agrees_with_gpxpy(path: Path) -> None:
    with path.open("rb") as content:
        tracks = gpxpy.parse(content).tracks
    points = [point for track in tracks for segment in track.segments for point in segment.points if point.time is not None]
    found = Found(path)
    assert found.places == [(point.latitude, point.longitude) for point in points]
    recent = [(time, point.time) for time, point in zip(found.times, points, strict=True) if point.time.year > 1970]
    assert all(abs(time - moment.timestamp() * 1000) < 1 for time, moment in recent)
