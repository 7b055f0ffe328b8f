"""Parquet: kinds of columns for times, places and users; points of GeoParquet; and files that are none."""

import io
import json
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.errors import UserError
from jobs.replay.fixes import BATCH, Mapped, ReadOptions, Reason
from tests.jobs.replay.inputs import Found, write

NOON_MS = 1_710_072_000_000
NOON = "2024-03-10T12:00:00Z"
NOWHERE = (None, None)
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def packed(columns: dict[str, Any], metadata: dict[str, str] | None = None, **how: Any) -> bytes:
    whole = io.BytesIO()
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), whole, **how)
    return whole.getvalue()


def table(folder: Path, columns: dict[str, Any], options: ReadOptions | None = None, *, name: str = "carl.parquet", **how: Any) -> Found:
    return Found(write(folder, name, packed(columns, **how)), options, "parquet")


def times(folder: Path, column: Any, options: ReadOptions | None = None) -> Found:
    return table(folder, {"time": column, "lat": [48.1] * len(column), "lon": [11.5] * len(column)}, options)


def points(shapes: Any, crs: Any = ..., kind: pa.DataType | None = None) -> tuple[dict[str, Any], dict[str, str]]:
    said = {"encoding": "WKB", "geometry_types": []} | ({} if crs is ... else {"crs": crs})
    geo = {"version": "1.1.0", "primary_column": "where", "columns": {"where": said}}
    return {"t": [NOON] * len(shapes), "where": pa.array(shapes, kind or pa.binary())}, {"geo": json.dumps(geo)}


def test_rows_are_numbered_across_row_groups_and_a_table_without_users_is_about_the_files(tmp_path: Path) -> None:
    count = BATCH + 10
    columns = {"t": pa.array(range(count), pa.timestamp("ms", "UTC")), "lat": [1.0] * count, "lon": [2.0] * count}
    found = table(tmp_path, columns, row_group_size=5_000)
    assert [fix["index"] for fix in found.fixes] == list(range(1, count + 1))
    assert found.times == list(range(count))
    assert {fix["user"] for fix in found.fixes} == {"carl"}
    assert table(tmp_path, columns, name="carl.parquet.gz").fixes == found.fixes


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_stamps_with_a_zone_are_moments_rounded_down(tmp_path: Path, unit: str) -> None:
    stamps = [NOON_MS * PER_SECOND[unit] // 1000 + more for more in (0, PER_SECOND[unit] // 1000, 999 * PER_SECOND[unit] // 1000)]
    found = times(tmp_path, pa.array([*stamps, -1, None], pa.timestamp(unit, "Asia/Shanghai")))
    assert found.times == [NOON_MS, NOON_MS + 1, NOON_MS + 999, -1]
    assert (found.refused, found.at) == ({Reason.MISSING_FIELD: 1}, [5])


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_stamps_without_a_zone_need_one(tmp_path: Path, unit: str) -> None:
    column = pa.array([NOON_MS * PER_SECOND[unit] // 1000, None], pa.timestamp(unit))
    assert times(tmp_path, column).refused == {Reason.TIME_ZONE_MISSING: 1, Reason.MISSING_FIELD: 1}
    for zone in (timezone(timedelta(hours=1)), ZoneInfo("Europe/Berlin")):
        assert times(tmp_path, column, ReadOptions(zone=zone)).times == [NOON_MS - 3_600_000]


def test_stamps_of_old_writers_are_read(tmp_path: Path) -> None:
    columns = {"t": pa.array([NOON_MS, 32_503_680_000_000], pa.timestamp("ms")), "lat": [1.0] * 2, "lon": [2.0] * 2}
    found = table(tmp_path, columns, ReadOptions(zone=UTC), use_deprecated_int96_timestamps=True)
    assert found.times == [NOON_MS, 32_503_680_000_000]


def test_stamps_beyond_the_calendar_are_refused_and_far_ones_are_passed_on(tmp_path: Path) -> None:
    assert times(tmp_path, pa.array([2**62, -(2**62)], pa.timestamp("us")), ReadOptions(zone=UTC)).refused == {Reason.WRONG_TYPE: 2}
    assert times(tmp_path, pa.array([2**62], pa.timestamp("ms", "UTC"))).refused == {Reason.WRONG_TYPE: 1}
    assert times(tmp_path, pa.array([10**15], pa.timestamp("ms", "UTC"))).times == [10**15]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())])
def test_texts_are_iso_8601_in_whatever_column(tmp_path: Path, kind: pa.DataType) -> None:
    texts = pa.array([NOON, "2024-03-10T12:00:00.7+01:00", "2024-03-10T12:00:00", "noon", None])
    found = times(tmp_path, texts.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else texts.cast(kind))
    assert found.times == [NOON_MS, NOON_MS - 3_600_000 + 700]
    assert found.refused == {Reason.TIME_ZONE_MISSING: 1, Reason.WRONG_TYPE: 1, Reason.MISSING_FIELD: 1}


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        (pa.array([1_710_072_000, 1_710_072_000]), "s"),
        (pa.array([1_710_072_000.0, 1_710_072_000.0009]), "s"),
        (pa.array([1_710_072_000_000, 1_710_072_000_000], pa.uint64()), "ms"),
        (pa.array([1_710_072_000_000_000, 1_710_072_000_000_999]), "us"),
        (pa.array(["1710072000", "1710072000.0009"]), "s"),
        (pa.array([1_710_072_000, 1_710_072_000]).cast(pa.decimal128(25, 2)), "s"),
    ],
)
def test_numbers_need_a_unit(tmp_path: Path, column: pa.Array, unit: str) -> None:
    assert times(tmp_path, column, ReadOptions(mapped=Mapped(time_unit=unit))).times == [NOON_MS] * 2
    with pytest.raises(UserError, match="--time-unit"):
        times(tmp_path, column)


def test_numbers_that_are_no_times_are_refused(tmp_path: Path) -> None:
    found = times(tmp_path, pa.array([float("nan"), float("inf"), 1e300, None, 0.0]), ReadOptions(mapped=Mapped(time_unit="s")))
    assert (found.times, found.refused) == ([0], {Reason.WRONG_TYPE: 3, Reason.MISSING_FIELD: 1})
    assert times(tmp_path, pa.array([True]), ReadOptions(mapped=Mapped(time_unit="s"))).refused == {Reason.WRONG_TYPE: 1}
    assert times(tmp_path, pa.nulls(2)).refused == {Reason.MISSING_FIELD: 2}


@pytest.mark.parametrize(
    ("lat", "expected"),
    [
        (pa.array([48.1, float("nan"), float("inf"), None]), [(48.1, 11.5), *[NOWHERE] * 3]),
        (pa.array([48.5, -270.5], pa.float32()), [(48.5, 11.5), (-270.5, 11.5)]),
        (pa.array([48, 0]), [(48.0, 11.5), (0.0, 11.5)]),
        (pa.array(["48.1", "nan", "true", None]), [(48.1, 11.5), *[NOWHERE] * 3]),
        (pa.array([True, False]), [NOWHERE] * 2),
        (pa.nulls(1), [NOWHERE]),
        (pa.array([48]).cast(pa.decimal128(25, 1)), [(48.0, 11.5)]),
    ],
)
def test_what_is_no_finite_number_is_presence_without_a_place(tmp_path: Path, lat: pa.Array, expected: Any) -> None:
    found = table(tmp_path, {"t": [NOON] * len(lat), "lat": lat, "lng": [11.5] * len(lat)})
    assert (found.places, found.counts[2:]) == (expected, (0, 0))


@pytest.mark.parametrize(
    ("users", "expected"),
    [
        (pa.array([7, None]), ["7"]),
        (pa.array(["a", ""]), ["a"]),
        (pa.array(["a", None], pa.large_string()), ["a"]),
        (pa.array(["a", None]).dictionary_encode(), ["a"]),
        (pa.array([b"\xc3\xbc", b""], pa.binary()), ["ü"]),
    ],
)
def test_users_are_texts_or_numbers_and_without_one_a_row_is_refused(tmp_path: Path, users: pa.Array, expected: list[str]) -> None:
    found = table(tmp_path, {"device_id": users, "t": [NOON] * 2, "lat": [1.0] * 2, "lon": [2.0] * 2})
    assert ([fix["user"] for fix in found.fixes], found.refused, found.at) == (expected, {Reason.MISSING_FIELD: 1}, [2])


def test_users_that_are_no_utf_8_are_refused(tmp_path: Path) -> None:
    broken = pa.array([b"\xfc", b"a", b"\xf6"], pa.binary())
    users = pa.StringArray.from_buffers(3, *broken.buffers()[1:])
    found = table(tmp_path, {"user": users, "t": [NOON] * 3, "lat": [1.0] * 3, "lon": [2.0] * 3})
    assert ([fix["user"] for fix in found.fixes], found.refused, found.at) == (["a"], {Reason.WRONG_TYPE: 2}, [1, 3])


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_points_are_longitude_and_latitude_and_other_shapes_are_no_places(tmp_path: Path, kind: pa.DataType) -> None:
    shapes = [
        shapely.Point(11.5, 48.1),
        shapely.Point(11.5, 48.1, 500),
        shapely.Point(48.1, -270.5),
        shapely.Point(),
        shapely.Point(1, 2).buffer(1),
    ]
    wkb = [
        *shapely.to_wkb(shapes),
        shapely.to_wkb(shapes[0], byte_order=0),
        shapely.to_wkb(shapely.LineString([(0, 0), (1, 1)])),
        b"\1\1",
        b"",
        None,
    ]
    columns, metadata = points(wkb, kind=kind)
    found = table(tmp_path, columns, metadata=metadata)
    assert found.places == [(48.1, 11.5), (48.1, 11.5), (-270.5, 48.1), NOWHERE, NOWHERE, (48.1, 11.5), *[NOWHERE] * 4]
    assert found.refused.total() == 0


def test_shapes_nested_without_end_do_no_harm(tmp_path: Path) -> None:
    columns, metadata = points([b"\1\7\0\0\0\1\0\0\0" * 1_000_000, shapely.to_wkb(shapely.Point(11.5, 48.1))])
    assert table(tmp_path, columns, metadata=metadata).places == [NOWHERE, (48.1, 11.5)]


def test_declared_points_go_before_usual_names_and_named_columns_before_both(tmp_path: Path) -> None:
    columns, metadata = points([shapely.to_wkb(shapely.Point(11.5, 48.1))])
    columns |= {"lat": [1.0], "lon": [2.0], "y": [3.0]}
    assert table(tmp_path, columns, metadata=metadata).places == [(48.1, 11.5)]
    assert table(tmp_path, columns).places == [(1, 2)]
    assert table(tmp_path, columns, ReadOptions(mapped=Mapped(lat="y")), metadata=metadata).places == [(3, 2)]


def test_points_in_metres_or_in_an_unknown_system_are_refused_as_a_whole(tmp_path: Path) -> None:
    point = [shapely.to_wkb(shapely.Point(11.5, 48.1))]
    for crs in ({"id": {"authority": "EPSG", "code": 4326}}, {"id": {"authority": "OGC", "code": "CRS84"}}):
        columns, metadata = points(point, crs)
        assert table(tmp_path, columns, metadata=metadata).places == [(48.1, 11.5)]
    for crs in (None, {"id": {"authority": "EPSG", "code": 3857}}, {"id": {"authority": "EPSG", "code": [4326]}}, {"id": 7}, {}):
        columns, metadata = points(point, crs)
        with pytest.raises(UserError, match="EPSG:4326"):
            table(tmp_path, columns, metadata=metadata)


@pytest.mark.parametrize(
    "geo", ["{", "[]", "7", '{"primary_column":"where"}', '{"primary_column":[],"columns":{}}', '{"columns":{"where":{}}}']
)
def test_metadata_that_say_nothing_do_not_count(tmp_path: Path, geo: str) -> None:
    columns = {"t": [NOON], "lat": [1.0], "lon": [2.0], "where": [b"x"]}
    assert table(tmp_path, columns, metadata={"geo": geo}).places == [(1, 2)]


def test_what_the_table_does_not_say_has_to_be_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--map lat=NAME"):
        table(tmp_path, {"t": [NOON], "lon": [1.0]})
    with pytest.raises(UserError, match="--map time=NAME"):
        table(tmp_path, {"when": [NOON], "lat": [1.0], "lon": [1.0]})
    with pytest.raises(UserError, match="--map lon=NAME"):
        table(tmp_path, {"t": [NOON], "lat": [1.0], "lon": [1.0], "Lon": [1.0]})


def test_columns_of_a_kind_without_meaning_end_the_file(tmp_path: Path) -> None:
    lists = pa.array([[1.0]])
    for name in ("user", "t", "lat"):
        columns = {"user": ["u"], "t": [NOON], "lat": [1.0], "lon": [1.0]} | {name: lists}
        assert "kind that cannot be read" in str(table(tmp_path, columns, ReadOptions(mapped=Mapped(time_unit="s"))).damage)


def test_what_is_cut_off_is_no_table(tmp_path: Path) -> None:
    whole = packed({"t": [NOON] * 1000, "lat": [1.0] * 1000, "lon": [2.0] * 1000})
    for length in (0, 4, 12, len(whole) // 2, len(whole) - 1):
        found = Found(write(tmp_path, "carl.parquet", whole[:length]), None, "parquet")
        assert found.counts == (0, 0, 0, 0)
        assert found.damage is not None


SEED = packed(
    {
        "user": ["anna", "bea"] * 20,
        "t": pa.array(range(NOON_MS, NOON_MS + 40), pa.timestamp("ms", "UTC")),
        "where": pa.array(shapely.to_wkb(shapely.points([11.5] * 40, range(40))), pa.binary()),
    },
    points([])[1],
    row_group_size=20,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SEED) - 1), st.integers(0, 3), st.binary(max_size=4)), min_size=1, max_size=4))
def test_no_bytes_make_the_reader_fail(tmp_path: Path, changes: list[tuple[int, int, bytes]]) -> None:
    content = SEED
    for at, length, piece in changes:
        content = content[:at] + piece + content[at + length :]
    try:
        found = Found(write(tmp_path, "carl.parquet", content), ReadOptions(zone=UTC), "parquet")
    except UserError:  # a name of a column was hit
        return
    assert all(lat is None or abs(lat) < float("inf") for lat, _ in found.places)
    assert len(found.fixes) + found.refused.total() <= 40 or found.damage is not None
