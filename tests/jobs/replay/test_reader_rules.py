"""Rules of the readers, by the faults that real location systems had (rows A1 to A32 of the list that the project keeps)."""

import json
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from jobs.errors import UserError
from jobs.replay.fixes import Mapped, ReadOptions, Reason
from tests.jobs.replay.inputs import Found, write

NOON = 1_710_072_000_000  # 2024-03-10T12:00:00Z
HEADER = "user,time,lat,lon\n"
NOWHERE = (None, None)
MS = ReadOptions(mapped=Mapped(time_unit="ms"))


def table(folder: Path, *rows: str, options: ReadOptions | None = None, header: str = HEADER) -> Found:
    return Found(write(folder, "some.csv", header + "".join(f"{row}\n" for row in rows)), options)


def gpx(folder: Path, *points: str, options: ReadOptions | None = None) -> Found:
    text = f'<gpx version="1.1" xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>{"".join(points)}</trkseg></trk></gpx>'
    return Found(write(folder, "anna.gpx", text), options)


def point(time: str, lat: str = "48.1", lon: str = "11.5") -> str:
    return f'<trkpt lat="{lat}" lon="{lon}"><time>{time}</time></trkpt>'


def nmea(folder: Path, *sentences: str) -> Found:
    return Found(
        write(folder, "boat.log", "".join(f"{sentence}\r\n" for sentence in ("$GPGSA,A,3,28,,,,,,,,,,,,4.9,1.6,4.5*39", *sentences))),
        format_="nmea",
    )


def document(folder: Path, content: Any, name: str = "some.json", options: ReadOptions | None = None) -> Found:
    return Found(write(folder, name, json.dumps(content)), options)


def test_impossible_and_zero_places_are_passed_on_as_they_are_and_unusable_ones_become_none(tmp_path: Path) -> None:
    places = ["12.3,-270.6", "1848.7,1848.7", "0.0,0.0", "NaN,11", "48,", "Infinity,1", "true,1", "abc,1", "4_8,1", " 48.5 ,+11"]
    found = table(tmp_path, *(f"u,2024-03-10T12:00:00Z,{place}" for place in places))
    assert found.places == [(12.3, -270.6), (1848.7, 1848.7), (0.0, 0.0), *[NOWHERE] * 6, (48.5, 11.0)]
    assert found.times == [NOON] * len(places)


def test_one_bad_row_changes_nothing_of_the_others(tmp_path: Path) -> None:
    rows = [f"user-{n % 7},2024-03-10T12:00:{n % 60:02d}.{n % 1000:03d}Z,{48 + n / 1e5:.5f},{11 - n / 1e5:.5f}" for n in range(5_000)]
    good = table(tmp_path, *rows)
    spoilt = table(
        tmp_path, *rows[:2_500], "u,2024-03-10T12:00:00Z,x,1", "u,never,1,1", "u,1", '"u"x,2024-03-10T12:00:00Z,1,1,1', "", *rows[2_500:]
    )
    assert [fix | {"index": 0} for fix in good.fixes] == [fix | {"index": 0} for fix in spoilt.fixes if fix["lat"] is not None]
    assert spoilt.counts == (5_001, 1, 3, 2)
    assert spoilt.refused == {Reason.WRONG_TYPE: 1, Reason.MALFORMED: 2}
    assert sorted(spoilt.at) == [2_503, 2_504, 2_505]
    assert [fix["index"] for fix in spoilt.fixes[2_499:2_502]] == [2_501, 2_502, 2_507]


def test_axis_order_is_that_of_the_header_and_never_swapped(tmp_path: Path) -> None:
    row = "u,2024-03-10T12:00:00Z,48.14,11.58"
    assert table(tmp_path, row, header="user,time,lon,lat\n").places == [(11.58, 48.14)]
    feature = {
        "type": "Feature",
        "properties": {"time": "2024-03-10T12:00:00Z"},
        "geometry": {"type": "Point", "coordinates": [39.9, 116.4]},
    }
    assert document(tmp_path, {"type": "FeatureCollection", "features": [feature]}, "a.geojson").places == [(116.4, 39.9)]


def test_the_unit_of_numbers_is_never_guessed(tmp_path: Path) -> None:
    row = f"u,{NOON},48,11"
    with pytest.raises(UserError, match="--time-unit"):
        table(tmp_path, row)
    assert table(tmp_path, row, options=MS).times == [NOON]
    assert table(tmp_path, row, options=ReadOptions(mapped=Mapped(time_unit="us"))).times == [NOON // 1000]
    seconds = ReadOptions(mapped=Mapped(time_unit="s"))
    assert table(tmp_path, "u,1710072000.2507,48,11", "u,1e99,48,11", "u,,48,11", options=seconds).times == [NOON + 250]
    feature = {"type": "Feature", "properties": {"t": NOON}, "geometry": {"type": "Point", "coordinates": [11, 48]}}
    with pytest.raises(UserError, match="--time-unit"):
        document(tmp_path, {"type": "FeatureCollection", "features": [feature]}, "a.geojson")


def test_offsets_count_and_times_without_one_need_a_zone(tmp_path: Path) -> None:
    texts = ("2024-03-10T01:30:00-07:00", "2024-03-10T01:30:00")
    west, at_half_past_eight = timezone(timedelta(hours=-7)), NOON - 3 * 3_600_000 - 1_800_000
    for read in (
        lambda options: table(tmp_path, *(f"u,{t},48,11" for t in texts), options=options),
        lambda options: gpx(tmp_path, *map(point, texts), options=options),
    ):
        found = read(None)
        assert found.times == [at_half_past_eight]
        assert found.refused == {Reason.TIME_ZONE_MISSING: 1}
        assert read(ReadOptions(zone=west)).times == [at_half_past_eight] * 2
        assert read(ReadOptions(zone=ZoneInfo("America/Phoenix"))).times == [at_half_past_eight] * 2


def test_milliseconds_are_kept(tmp_path: Path) -> None:
    fractions = ("12:00:00.200Z", "12:00:00.700Z", "12:00:00.9999Z")
    assert gpx(tmp_path, *(point(f"2024-03-10T{text}") for text in fractions)).times == [NOON + 200, NOON + 700, NOON + 999]
    assert table(tmp_path, *(f"u,2024-03-10T{text},48,11" for text in fractions)).times == [NOON + 200, NOON + 700, NOON + 999]
    assert nmea(tmp_path, "$GPRMC,120000.29,A,4808.00,N,01130.00,E,0,0,100324,,,A").times == [NOON + 290]


def test_files_with_no_and_one_fix_are_read(tmp_path: Path) -> None:
    assert gpx(tmp_path).counts == (0, 0, 0, 0)
    assert gpx(tmp_path, point("2024-03-10T12:00:00Z")).counts == (1, 0, 0, 0)
    assert table(tmp_path).counts == (0, 0, 0, 1) or table(tmp_path).counts == (0, 0, 0, 0)


def test_void_sentences_have_no_place_and_what_has_no_day_is_refused(tmp_path: Path) -> None:
    found = nmea(
        tmp_path,
        "$GPRMC,101500.00,V,,,,,,,100324,,,N*7C",
        "$GPRMC,101501.00,A,0000.0000,N,00000.0000,E,0.0,0.0,100324,,,A*5E",
        "$GPRMC,,A,4808.00,N,01130.00,E,0,0,,,,A",
        "$GPRMC,101502.00,A,4808.00,N,01130.00,E,0,0,100324,,,A*00",
        "$GPRMC,251502.00,A,4808.00,N,01130.00,E,0,0,100324,,,A",
        "\x80\x81$GNRMC,101503.00,A,4830.00,S,01130.00,W,0,0,100399,,,A",
    )
    assert found.places == [NOWHERE, (0.0, 0.0), (-48.5, -11.5)]
    assert found.refused == {Reason.MISSING_FIELD: 1, Reason.MALFORMED: 1, Reason.WRONG_TYPE: 1}
    assert found.times[2] < 946_684_800_000  # a year of 99 is 1999
    undated = nmea(tmp_path, "$GPGGA,101500.00,4808.00,N,01130.00,E,1,05,1.6,209.8,M,-34.2,M,,")
    assert undated.refused == {Reason.MISSING_FIELD: 1}


def test_invalid_and_outdated_positions_of_traccar_have_no_place(tmp_path: Path) -> None:
    def position(seconds: int, lat: float, lon: float, **more: Any) -> dict[str, Any]:
        return {"deviceId": 1, "fixTime": f"2024-03-10T12:00:{seconds:02d}Z", "latitude": lat, "longitude": lon, "speed": 1202.6, **more}

    positions = [
        position(0, 48.1, 11.5),
        position(10, 0.0, 0.0, valid=False),
        position(20, 0.0000004, 0.0),
        position(30, 50.0, 8.0, outdated=True),
        {"deviceId": 1, "latitude": 1, "longitude": 1},
        {"fixTime": "2024-03-10T12:00:00Z"},
        7,
    ]
    for shape in (positions, {"positions": positions}):
        found = document(tmp_path, shape)
        assert found.places == [(48.1, 11.5), NOWHERE, (0.0000004, 0.0), NOWHERE]
        assert found.refused == {Reason.MISSING_FIELD: 2, Reason.MALFORMED: 1}
        assert {fix["user"] for fix in found.fixes} == {"1"}


def test_owntracks_goes_by_the_time_of_the_fix_and_passes_repeats_on(tmp_path: Path) -> None:
    def line(message: dict[str, Any]) -> str:
        return f"2024-04-02T08:00:00Z\t*                 \t{json.dumps(message)}\n"

    fix = {"_type": "location", "tst": NOON // 1000, "lat": 48.1, "lon": 11.5, "topic": "owntracks/anna/phone"}
    messages = [*[fix] * 3, fix | {"created_at": 1}, fix | {"tst": None}, {"_type": "lwt", "tst": 1}, fix | {"lat": None, "topic": "?"}]
    path = write(tmp_path, "rec/anna/phone/2024-03.rec", "".join(map(line, messages)) + "2024-04-02T08:00:00Z\t*\t{")
    found = Found(path)
    assert found.counts == (5, 1, 2, 1)
    assert found.times == [NOON] * 5
    assert {fix["user"] for fix in found.fixes} == {"anna/phone"}
    assert found.refused == {Reason.MISSING_FIELD: 1, Reason.MALFORMED: 1}


def test_four_shapes_of_google(tmp_path: Path) -> None:
    start, end = "2024-03-10T12:00:00Z", "2024-03-10T13:00:00.000+01:00"
    e7 = {"latitudeE7": 481_000_000, "longitudeE7": 115_000_000}
    records = {
        "locations": [
            {**e7, "timestamp": start},
            {**e7, "timestampMs": str(NOON)},
            {**e7},
            {"timestamp": start},
            {**e7, "latitudeE7": 4_294_967_295, "timestamp": start},
        ]
    }
    found = document(tmp_path, records)
    assert (found.format, found.counts) == ("takeout", (4, 1, 1, 0))
    assert found.places[0] == (48.1, 11.5)
    assert found.places[-1][0] == pytest.approx(429.4967295)

    semantic = {
        "timelineObjects": [
            {"placeVisit": {"location": e7, "duration": {"startTimestamp": start, "endTimestampMs": str(NOON)}}},
            {
                "activitySegment": {
                    "startLocation": e7,
                    "endLocation": e7,
                    "duration": {"startTimestamp": start, "endTimestamp": end},
                    "waypointPath": {"waypoints": [{"latE7": 1, "lngE7": 1}]},
                    "simplifiedRawPath": {"points": [{"latE7": 481_000_000, "lngE7": 115_000_000, "timestamp": start}]},
                }
            },
        ]
    }
    found = document(tmp_path, semantic)
    assert found.counts == (5, 0, 0, 1)
    assert set(found.places) == {(48.1, 11.5)}
    assert set(found.times) == {NOON}

    phone = {
        "semanticSegments": [
            {"startTime": start, "endTime": end, "timelinePath": [{"point": "48.1°, 11.5°", "time": start}, {"point": "?", "time": start}]},
            {"startTime": start, "endTime": end, "visit": {"topCandidate": {"placeLocation": {"latLng": "48.1°, 11.5°"}}}},
            {"startTime": start, "endTime": end, "activity": {"start": {"latLng": "48.1°, 11.5°"}, "end": {"latLng": "48.1°, 11.5°"}}},
            {"startTime": start, "timelineMemory": {}},
        ],
        "rawSignals": [{"position": {"LatLng": "48.1°, 11.5°", "timestamp": start}}, {"wifiScan": {}}],
    }
    found = document(tmp_path, phone)
    assert found.counts == (7, 1, 0, 2)
    assert set(found.places) == {(48.1, 11.5), NOWHERE}

    ios = [
        {"startTime": start, "endTime": end, "visit": {"topCandidate": {"placeLocation": "geo:48.1,11.5"}}},
        {"startTime": start, "endTime": end, "timelinePath": [{"point": "geo:48.1,11.5", "durationMinutesOffsetFromStartTime": "12"}]},
        {"endTime": end, "activity": {"start": "geo:48.1,11.5", "end": "geo:48.1,11.5"}},
    ]
    found = document(tmp_path, ios)
    assert found.counts == (4, 0, 1, 0)
    assert sorted(found.times) == [NOON] * 3 + [NOON + 720_000]


def test_lines_of_geojson_need_a_time_for_each_point(tmp_path: Path) -> None:
    moments = ["2024-03-10T12:00:00Z", "2024-03-10T12:00:01Z"]

    def line(kind: str, coordinates: Any, times: Any) -> dict[str, Any]:
        return {"type": "Feature", "properties": {"user": "u", "coordTimes": times}, "geometry": {"type": kind, "coordinates": coordinates}}

    pair = [[11.5, 48.1], [11.6, 48.2, 500]]
    features = [
        line("LineString", pair, moments),
        line("LineString", pair, moments[:1]),
        line("MultiLineString", [pair, pair], [moments, moments]),
        line("LineString", pair, None),
        {"type": "Feature", "properties": {"time": moments[0]}, "geometry": {"type": "Polygon", "coordinates": []}},
        {"type": "Feature", "properties": {}, "geometry": {"type": "Point", "coordinates": [1, 2]}},
        {"type": "Feature", "properties": {"time": moments[0]}, "geometry": None},
    ]
    whole = document(tmp_path, {"type": "FeatureCollection", "features": features}, "a.geojson")
    by_line = Found(write(tmp_path, "b.geojsonl", "".join(f"\x1e{json.dumps(feature)}\n" for feature in features)))
    for found in (whole, by_line):
        assert found.counts == (6, 0, 4, 1)
        assert found.times[:2] == [NOON, NOON + 1000]
        assert found.refused == {Reason.MALFORMED: 2, Reason.MISSING_FIELD: 2}


def test_parquet_with_columns_and_with_points(tmp_path: Path) -> None:
    zoned = pa.array([NOON * 1000, NOON * 1000 + 999, None], pa.timestamp("us", "UTC"))
    columns = {"device": pa.array([7, 8, 9]), "time": zoned, "lat": pa.array([48.1, float("nan"), 1.0]), "lon": pa.array([11.5, 1.0, 1.0])}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    found = Found(tmp_path / "a.parquet")
    assert (found.places, found.times) == ([(48.1, 11.5), NOWHERE], [NOON, NOON])
    assert [fix["user"] for fix in found.fixes] == ["7", "8"]
    assert found.refused == {Reason.MISSING_FIELD: 1}

    naive = pa.array([NOON, NOON + 1], pa.timestamp("ms"))
    shapes = pa.array(shapely.to_wkb([shapely.Point(11.5, 48.1), shapely.LineString([(0, 0), (1, 1)])]))
    geo = {"version": "1.0.0", "primary_column": "geometry", "columns": {"geometry": {"encoding": "WKB", "geometry_types": []}}}
    pq.write_table(pa.table({"t": naive, "geometry": shapes}).replace_schema_metadata({"geo": json.dumps(geo)}), tmp_path / "b.parquet")
    assert Found(tmp_path / "b.parquet").refused == {Reason.TIME_ZONE_MISSING: 2}
    found = Found(tmp_path / "b.parquet", ReadOptions(zone=UTC))
    assert found.places == [(48.1, 11.5), NOWHERE]
    assert found.times == [NOON, NOON + 1]

    pq.write_table(pa.table({"t": pa.array([NOON]), "lat": [1.0], "lon": [1.0]}), tmp_path / "c.parquet")
    with pytest.raises(UserError, match="--time-unit"):
        Found(tmp_path / "c.parquet")


def test_columns_can_be_named_and_a_missing_one_is_said(tmp_path: Path) -> None:
    header = "wer;wann;breite;laenge\n"
    path = write(tmp_path, "some.csv", f"{header}u;2024-03-10T12:00:00Z;48.1;11.5\n")
    options = ReadOptions(mapped=Mapped("wer", "wann", "breite", "laenge"))
    assert Found(path, options, "csv").places == [(48.1, 11.5)]
    with pytest.raises(UserError, match="--map time=NAME"):
        Found(path, format_="csv")
    with pytest.raises(UserError, match="no column `x`"):
        Found(path, ReadOptions(mapped=Mapped(time="x")), "csv")


def test_cabspotting_in_its_original_form(tmp_path: Path) -> None:
    found = Found(write(tmp_path, "new_abboip.txt", "37.75134 -122.39488 0 1213084687\n37.75136 -122.39527 0 1213084659\n"))
    assert (found.format, found.times) == ("cabspotting", [1_213_084_687_000, 1_213_084_659_000])
    assert found.fixes[0]["user"] == "cabspotting-abboip"


def test_a_simulation_needs_its_start_and_degrees(tmp_path: Path) -> None:
    text = '<fcd-export><timestep time="1.50"><vehicle id="v" x="{x}" y="60.1"/><person id="p" x="25" y="61"/></timestep></fcd-export>'
    path = write(tmp_path, "a.xml", text.format(x="24.9"))
    with pytest.raises(UserError, match="--start"):
        Found(path)
    found = Found(path, ReadOptions(start_ms=NOON))
    assert [(fix["user"], fix["t_ms"], fix["lat"], fix["lon"]) for fix in found.fixes] == [
        ("v", NOON + 1500, 60.1, 24.9),
        ("p", NOON + 1500, 61, 25),
    ]
    assert "fcd-output.geo" in str(Found(write(tmp_path, "a.xml", text.format(x="9000")), ReadOptions(start_ms=0)).damage)


def test_what_is_whole_before_damage_is_read(tmp_path: Path) -> None:
    whole = "".join(point("2024-03-10T12:00:00Z") for _ in range(100))
    cut = write(tmp_path, "cut.gpx", f"<gpx><trk><trkseg>{whole}<trkpt lat=")
    assert (len(Found(cut).fixes), Found(cut).damage) == (100, "its XML is broken or not whole")
    locations = [{"latitudeE7": 1, "longitudeE7": 1, "timestamp": "2024-03-10T12:00:00Z"}] * 50
    found = Found(write(tmp_path, "cut.json", json.dumps({"locations": locations})[:-40]))
    assert (len(found.fixes), found.damage) == (49, "its JSON is broken or not whole")
    packed = write(tmp_path, "cut.csv.gz", HEADER + "u,2024-03-10T12:00:00Z,48,11\n" * 200_000)
    packed.write_bytes(packed.read_bytes()[:-1_000])
    assert Found(packed).damage is not None


def test_an_entity_bomb_does_no_harm(tmp_path: Path) -> None:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    bomb = (
        f'<!DOCTYPE gpx [<!ENTITY e0 "x">{entities}]><gpx><trk><trkseg>{point("&e11;")}{point("2024-03-10T12:00:00Z")}</trkseg></trk></gpx>'
    )
    found = Found(write(tmp_path, "bomb.gpx", bomb), format_="gpx")
    assert found.damage is not None or found.refused.total() == 1
