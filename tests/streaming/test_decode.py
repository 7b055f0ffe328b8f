import numpy as np
import orjson
import pytest

from streaming.decode import Decoder, split_by_shard
from streaming.records import RECORD, Kind
from streaming.settings import SourceSettings
from streaming.ticks import TickGrid

GRID = TickGrid(60_000, 30_000)
T = 1_700_000_040_000
GOOD = {"user": "d1", "t": T, "lat": 48.1, "lon": 11.5}


def kinds(values: list[bytes | None], log_ms: int = T + 1000, **source: object) -> list[Kind]:
    n = len(values)
    decoder = Decoder([SourceSettings.model_validate(source)], GRID, b"s" * 32)
    rows = decoder.decode(values, np.full(n, log_ms), np.zeros(n, int), np.arange(n))
    assert len(rows) == n
    assert not rows["lat_e7"][rows["kind"] != Kind.FIX].any()
    return [Kind(kind) for kind in rows["kind"].tolist()]


def one(log_ms: int = T + 1000, source: dict[str, object] | None = None, **change: object) -> Kind:
    return kinds([orjson.dumps({**GOOD, **change})], log_ms, **(source or {}))[0]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({}, Kind.FIX),
        ({"user": None}, Kind.MISSING_FIELD),
        ({"user": ""}, Kind.WRONG_TYPE),
        ({"user": 7}, Kind.WRONG_TYPE),
        ({"user": ["d1"]}, Kind.WRONG_TYPE),
        ({"user": "é" * 200}, Kind.USER_TOO_LONG),
        ({"t": None}, Kind.MISSING_FIELD),
        ({"t": True}, Kind.WRONG_TYPE),
        ({"t": str(T)}, Kind.WRONG_TYPE),
        ({"t": T // 1000}, Kind.WRONG_TIME_UNIT),
        ({"t": T * 1000}, Kind.WRONG_TIME_UNIT),
        ({"t": 0}, Kind.BEFORE_ARCHIVE),
        ({"t": T + 86_400_000}, Kind.FUTURE),
        ({"t": 10**19}, Kind.FUTURE),
        ({"t": T - 200_000}, Kind.LATE),
        ({"lat": None}, Kind.POSITION_MISSING),
        ({"lat": True}, Kind.POSITION_TYPE),
        ({"lat": "12.3"}, Kind.POSITION_TYPE),
        ({"lat": ""}, Kind.POSITION_TYPE),
        ({"lon": -270.6}, Kind.POSITION_RANGE),
        ({"lat": -90.0001}, Kind.POSITION_RANGE),
        ({"lat": 1848.7, "lon": 1848.7}, Kind.POSITION_RANGE),
        ({"lat": 0.0000004, "lon": 0}, Kind.NULL_ISLAND),
    ],
)
def test_every_rule(change: dict[str, object], kind: Kind) -> None:
    assert one(**change) is kind


def test_null_island_can_be_switched_off() -> None:
    assert one(source={"null_island_deg": 0}, lat=0.0, lon=0.0) is Kind.FIX


def test_text_numbers_only_where_mapped() -> None:
    assert one(source={"text_numbers": True}, lat="12.3") is Kind.FIX
    assert one(source={"text_numbers": True}, lat="nan") is Kind.POSITION_TYPE
    assert one(source={"text_numbers": True}, lat="Infinity") is Kind.POSITION_TYPE


def test_bad_bytes_between_good_ones_do_no_harm() -> None:
    good = orjson.dumps(GOOD)
    bad = [b'{"user":"x","lat":1.0,"n":"\xff\xfe"}', b'{"lat":NaN}', b"", None, b"[1]", b'{"a":1},{"b":1}', b'"\\ud800"']
    assert kinds([good, *bad, good]) == [Kind.FIX, *[Kind.MALFORMED] * len(bad), Kind.FIX]


@pytest.mark.parametrize("lat", [b"NaN", b"-Infinity", b"1e400", b'"\\ud800"', b'"\xff"'])
def test_a_position_that_is_no_json_is_still_a_presence(lat: bytes) -> None:
    record = b'{"user":"d1","t":%d,"lat":%s,"lon":11.5}' % (T, lat)
    assert kinds([record, orjson.dumps(GOOD)]) == [Kind.POSITION_TYPE, Kind.FIX]


def test_no_records_give_no_blocks() -> None:
    assert split_by_shard(np.zeros(0, RECORD), 16) == ([], [])


def test_control_records() -> None:
    values = [b'{"wayveil":"heartbeat"}', b'{"wayveil":"enrolment","user":"d1"}', b'{"wayveil":"enrolment"}', b'{"wayveil":3}']
    assert kinds(values) == [Kind.HEARTBEAT, Kind.ENROLMENT, Kind.MISSING_FIELD, Kind.WRONG_TYPE]


@pytest.mark.parametrize(
    ("text", "t_ms"), [("2024-03-10T01:30:00-07:00", 1_710_059_400_000), ("2024-03-10T08:30:00.700Z", 1_710_059_400_700)]
)
def test_iso_times_keep_offset_and_milliseconds(text: str, t_ms: int) -> None:
    decoder = Decoder([SourceSettings(time_unit="iso")], GRID, b"s" * 32)
    rows = decoder.decode([orjson.dumps({**GOOD, "t": text})], np.array([t_ms]), np.zeros(1, int), np.zeros(1, int))
    assert rows["kind"][0] == Kind.FIX
    assert rows["t_ms"][0] == t_ms


def test_a_naive_iso_time_is_rejected() -> None:
    assert one(source={"time_unit": "iso"}, t="2024-03-10T01:30:00") is Kind.TIME_ZONE_MISSING


@pytest.mark.parametrize(("unit", "t"), [("s", 1_700_000_040.7), ("us", 1_700_000_040_700_123), ("ms", 1_700_000_040_700)])
def test_time_units(unit: str, t: float) -> None:
    decoder = Decoder([SourceSettings.model_validate({"time_unit": unit})], GRID, b"s" * 32)
    rows = decoder.decode([orjson.dumps({**GOOD, "t": t})], np.array([T + 1000]), np.zeros(1, int), np.zeros(1, int))
    assert rows["t_ms"][0] == T + 700


def test_position_never_decides_over_time() -> None:
    for change in ({"lat": 91}, {"lat": None}, {"lat": 0, "lon": 0}, {"lat": "x"}):
        assert one(t=T - 200_000, **change) is Kind.LATE
        assert one(t=T + 86_400_000, **change) is Kind.FUTURE


def test_shards_keep_every_record() -> None:
    values = [orjson.dumps({**GOOD, "user": f"u{i}"}) for i in range(500)] + [b"bad"] * 3
    decoder = Decoder([SourceSettings()], GRID, b"s" * 32)
    rows = decoder.decode(values, np.full(503, T), np.arange(503) % 2, np.arange(503))
    shards, blocks = split_by_shard(rows, 16)
    assert len(set(shards)) == len(shards) == len(blocks)
    back = np.frombuffer(b"".join(blocks), RECORD)
    assert sorted(back["offset"].tolist()) == list(range(503))
