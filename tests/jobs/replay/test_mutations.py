"""Whatever the bytes of a file are, a reader ends with what is whole in it: no other error, no number that is not finite, no disorder."""

import gzip
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jobs.errors import UserError
from jobs.replay.files import find_files
from jobs.replay.fixes import SCHEMA, DamagedError, Mapped, ReadOptions
from jobs.replay.formats import FORMATS, recognise

NOON = "2024-03-10T12:00:00Z"
SEEDS = {
    "geolife": (
        "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track,0,0,2,8421376\n0\n39.9,116.3,0,"
        "492,39744.12,2008-10-23,02:53:04\r\n"
    ),
    "tdrive": "1,2008-02-02 15:36:08,116.51172,39.92123\n1,2008-02-02 15:46:08,116.51135,39.93883\n",
    "cabspotting": "lat,lng,time,id\n37.75153,-122.39447,1211033530000,abboip\n",
    "porto": (
        '"TRIP_ID","CALL_TYPE","ORIGIN_CALL","ORIGIN_STAND","TAXI_ID","TIMESTAMP","DAY_TYPE","MISSING_DATA",'
        '"POLYLINE"\n"1","A","","","2","1376503546","A","False","[[-8.64,41.17],[-8.65,41.18]]"\n'
    ),
    "gpx": f'<?xml version="1.0"?><gpx><trk><trkseg><trkpt lat="48" lon="11"><time>{NOON}</time></trkpt></trkseg></trk></gpx>',
    "sumo": '<fcd-export><timestep time="1.00"><vehicle id="v" x="24.9" y="60.1"/></timestep></fcd-export>',
    "nmea": "$GPRMC,032908.379,A,4231.8291,N,08807.3033,W,0.17,138.92,070804,,*12\r\n$GPGGA,1*00\r\n",
    "owntracks": f'{NOON}\t*     \t{{"_type":"location","tst":1440395361,"lat":52.3,"lon":10.0}}\n',
    "traccar": f'[{{"deviceId":1,"fixTime":"{NOON}","latitude":52.0,"longitude":25.0,"valid":true}}]',
    "takeout": f'{{"locations":[{{"latitudeE7":481000000,"longitudeE7":115000000,"timestamp":"{NOON}"}}]}}',
    "geojson": (
        f'{{"type":"FeatureCollection","features":[{{"type":"Feature","properties":{{"time":"{NOON}"}},'
        f'"geometry":{{"type":"Point","coordinates":[11,48]}}}}]}}'
    ),
    "parquet": "PAR1",
    "csv": f"user,time,lat,lon\nu,{NOON},48.1,11.5\n",
}
PIECES = [
    b"NaN",
    b"1e999",
    b"-",
    b'"',
    b"\x00",
    b"\xff\xfe",
    b"\r",
    b"\n",
    b"[[",
    b"{",
    b"null",
    b"99999999999999999999",
    b"<",
    b"&x;",
    b",,",
    b"\xef\xbb\xbf",
    b"2024-13-45",
    b"_",
]
MUTATION = st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(PIECES) | st.binary(max_size=4))
OPTIONS = (ReadOptions(start_ms=0), ReadOptions(start_ms=0, mapped=Mapped(time_unit="ms")))


def read_all(path: Path, name: str, options: ReadOptions) -> int:
    (file,) = find_files([path], None, "file")
    known = next(format_ for format_ in FORMATS if format_.name == name)
    try:
        recognise(file, file.head())
    except DamagedError:
        pass
    count = 0
    try:
        for batch in known.read(file, options):
            batch.fixes.validate(full=True)
            assert batch.fixes.schema == SCHEMA
            index = [*batch.fixes["index"].to_pylist()]
            assert index == sorted(index)
            assert min([1, *index, *(at for at, _ in batch.refused)]) == 1
            for lat, lon in zip(batch.fixes["lat"].to_pylist(), batch.fixes["lon"].to_pylist(), strict=True):
                assert (lat is None) == (lon is None)
                assert lat is None or (math.isfinite(lat) and math.isfinite(lon))
            count += len(batch.fixes)
    except (DamagedError, UserError):
        pass
    return count


@pytest.mark.parametrize("name", SEEDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(mutations=st.lists(MUTATION, max_size=5), cut=st.floats(0, 1), packed=st.booleans())
@example(mutations=[], cut=1.0, packed=False)
def test_no_bytes_make_a_reader_fail(
    tmp_path: Path, name: str, mutations: list[tuple[float, int, bytes]], cut: float, packed: bool
) -> None:
    content = SEEDS[name].encode()
    for place, length, piece in mutations:
        at = round(place * len(content))
        content = content[:at] + piece + content[at + length :]
    content = content[: round(cut * len(content))]
    path = tmp_path / ("file.gz" if packed else "file")
    whole = gzip.compress(content) if packed else content
    path.write_bytes(whole[: round(cut * len(whole))] if packed else whole)
    count = max(read_all(path, name, options) for options in OPTIONS)
    if not mutations and cut == 1 and name != "parquet":
        assert count >= 1
