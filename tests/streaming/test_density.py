import numpy as np
import orjson
import pytest
import shapely

from geo.plane import Plane
from geo.tiling.tiling import Tiling, tile
from streaming.density import Density, DensityError
from tests.streaming.test_publisher import REGION, TILING, Stream, counts, settings

BOX = shapely.box(REGION["west"], REGION["south"], REGION["east"], REGION["north"])
WEST = shapely.box(24.4, 59.9, 24.9, 60.5)


def record(stream: Stream, *leaves: int) -> bytes:
    return orjson.dumps(stream.record(counts(*leaves)))


def test_the_whole_region_counts_all_but_elsewhere() -> None:
    stream = Stream(settings(epsilon=600.0))
    leaves = [k for k in range(len(TILING.tree.leaves)) if k != TILING.elsewhere for _ in range(k + 1)]
    density = Density.load(record(stream, *leaves, *[TILING.elsewhere] * 7), TILING)
    assert density.count[0] == len(leaves) + 7
    assert density.range_count(BOX).count == pytest.approx(len(leaves), abs=3)


def test_a_range_and_its_complement_share_the_whole() -> None:
    density = Density.load(record(Stream(), *range(len(TILING.tree.leaves))), TILING)
    east = shapely.difference(BOX, WEST)
    parts, whole = [density.range_count(part).count for part in (shapely.intersection(BOX, WEST), east)], density.range_count(BOX).count
    assert sum(parts) == pytest.approx(whole, rel=1e-6)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    leaves = [k for k in range(len(TILING.tree.leaves)) for _ in range(40)]
    inside = shapely.box(24.5, 60.0, 24.95, 60.4)
    truth = Density.load(record(Stream(settings(epsilon=600.0)), *leaves), TILING).range_count(inside)
    held, errors = [], []
    for k in range(400):
        density = Density.load(record(Stream(settings(epsilon=3.0), secret=bytes([k % 256, k // 256]) * 16), *leaves), TILING)
        found = density.range_count(inside)
        held.append(found.low <= truth.count <= found.high)
        errors.append((found.low + found.high) / 2 - truth.count)
    assert 0.93 <= np.mean(held) <= 0.995
    assert np.std(errors) == pytest.approx(found.standard_error, rel=0.15)


def test_with_smoothing_the_interval_is_not_too_narrow() -> None:
    leaves = [k for k in range(len(TILING.tree.leaves)) for _ in range(40)]
    inside = shapely.box(24.5, 60.0, 24.95, 60.4)
    truth = Density.load(record(Stream(settings(epsilon=600.0)), *leaves), TILING).range_count(inside)
    held = []
    for k in range(150):
        stream = Stream(settings(epsilon=3.0, smoothing=True), secret=bytes([k]) * 32)
        found = [Density.load(record(stream, *leaves), TILING).range_count(inside) for _ in range(6)][-1]
        held.append(found.low <= truth.count <= found.high)
    assert np.mean(held) >= 0.93


def test_another_tiling_or_version_is_refused() -> None:
    value = record(Stream(), 1)
    other: Tiling = tile(Plane(settings().region.region()), 200, (4, 3))
    with pytest.raises(DensityError, match="counted on tiling"):
        Density.load(value, other)
    with pytest.raises(DensityError, match="version"):
        Density.load(orjson.dumps({**orjson.loads(value), "v": 9}), TILING)


def test_before_anything_is_published_there_is_no_answer() -> None:
    stream = Stream(earlier={28_333_334: 12_000_000})
    density = Density.load(record(stream, 1), TILING)
    assert (density.stands, len(density.count)) == (None, 0)
    with pytest.raises(DensityError, match="later record"):
        density.range_count(BOX)


def test_bad_questions_are_refused() -> None:
    density = Density.load(record(Stream(), 1), TILING)
    for polygon in (shapely.Polygon(), shapely.Polygon([(24, 60), (25, 61), (25, 60), (24, 61)])):
        with pytest.raises(ValueError, match="olygon"):
            density.range_count(polygon)
    with pytest.raises(ValueError, match="confidence"):
        density.range_count(BOX, confidence=1.0)
    with pytest.raises(DensityError, match="longitude first"):
        density.range_count(shapely.box(60.1, 24.6, 60.2, 24.8))


@pytest.mark.parametrize("value", [b"{}", b"[]", b"null", b"1", b'"v"', b"{", b""])
def test_what_is_no_record_is_refused(value: bytes) -> None:
    with pytest.raises(DensityError, match="no record of density"):
        Density.load(value, TILING)
