"""A tiling survives its file, other programs can open it, and a file that is not what was built is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from geo.plane import Plane, Region
from geo.tiling.lattice import Lattice
from geo.tiling.tiling import Tiling, tile
from streaming.tiling_file import FORMAT_VERSION, Origin, TilingFileError, load_tiling, save_tiling

ORIGIN = Origin("roads of nowhere, © nobody", "CC0", 1000.0, 0.5, "add-remove")
REGIONS = {
    "town": Region("Töwn", 60.15, 24.9, 60.19, 25.0),
    "antimeridian": Region("antimeridian", -20.0, 177, -12, -178),
    "pole": Region("pole", 85.0, -180.0, 89.9, 180.0),
}


def tiling_of(name: str) -> Tiling:
    plane, cell_m = Plane(REGIONS[name]), 50 if name == "town" else 1500
    generator = np.random.default_rng(4)
    middle = np.array(Lattice(plane, cell_m).shape) // 2
    return tile(plane, cell_m, (4, 3), middle + generator.integers(-20, 20, (300, 2)), generator.exponential(30.0, 300))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "town.parquet"
    save_tiling(path, tiling_of("town"), ORIGIN)
    return path


@pytest.mark.parametrize("name", sorted(REGIONS))
def test_a_tiling_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    tiling = tiling_of(name)
    save_tiling(tmp_path / "t.parquet", tiling, ORIGIN)
    back, origin = load_tiling(tmp_path / "t.parquet")
    assert origin == ORIGIN
    assert back.digest == tiling.digest
    assert back.plane.region == tiling.plane.region
    assert back.off_road == tiling.off_road == 0.05
    for field in ("box", "cell_xy", "cell_weight", "cell_start"):
        assert np.array_equal(getattr(back, field), getattr(tiling, field))
        assert getattr(back, field).dtype == getattr(tiling, field).dtype
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.parquet"]


def test_a_tiling_without_roads_comes_back_too(tmp_path: Path) -> None:
    tiling = tile(Plane(REGIONS["town"]), 50, (5,))
    save_tiling(tmp_path / "t.parquet", tiling, ORIGIN)
    assert load_tiling(tmp_path / "t.parquet")[0].digest == tiling.digest


def test_the_file_is_geoparquet_with_a_polygon_for_each_node_but_elsewhere(path: Path) -> None:
    table, tiling = pq.read_table(path), tiling_of("town")
    geo = json.loads(table.schema.metadata[b"geo"])
    assert geo["version"] == "1.1.0"
    column = geo["columns"][geo["primary_column"]]
    assert column["encoding"] == "WKB"
    assert "crs" not in column
    shapes = shapely.from_wkb(table["geometry"].to_pylist())
    elsewhere = tiling.tree.leaves[tiling.elsewhere]
    assert [node for node, shape in enumerate(shapes) if shape is None] == [elsewhere]
    real = np.delete(shapes, elsewhere)
    assert shapely.is_valid(real).all()
    assert shapely.is_ccw(shapely.get_exterior_ring(real)).all()
    assert shapely.contains(shapes[0], shapely.box(24.9, 60.15, 25.0, 60.19))
    leaf = tiling.tree.leaves[int(tiling.leaf_of_degrees(np.array([601_700_000]), np.array([249_500_000]))[0])]
    assert shapely.contains(shapes[leaf], shapely.Point(24.95, 60.17))
    assert table["leaf"].null_count == len(tiling.tree) - len(tiling.tree.leaves)
    assert table["road_m"][0].as_py() == pytest.approx(tiling.cell_weight.sum())


def test_polygons_are_cut_at_the_antimeridian(tmp_path: Path) -> None:
    save_tiling(tmp_path / "t.parquet", tiling_of("antimeridian"), ORIGIN)
    shapes = [shape for shape in shapely.from_wkb(pq.read_table(tmp_path / "t.parquet")["geometry"].to_pylist()) if shape]
    assert shapes[0].geom_type == "MultiPolygon"
    assert {shape.geom_type for shape in shapes} == {"Polygon", "MultiPolygon"}
    for shape in shapes:
        for part in shapely.get_parts(shape):
            west, _, east, _ = part.bounds
            assert -180 <= west < east <= 180
            assert east - west < 6


def rewrite(path: Path, change: Any) -> None:
    table = pq.read_table(path)
    pq.write_table(change(table), path)


def with_head(**values: Any) -> Any:
    def change(table: Any) -> Any:
        metadata = dict(table.schema.metadata)
        metadata[b"wayveil"] = json.dumps({**json.loads(metadata[b"wayveil"]), **values}).encode()
        return table.replace_schema_metadata(metadata)

    return change


def with_column(name: str, function: Any) -> Any:
    def change(table: Any) -> Any:
        at = table.schema.get_field_index(name)
        return table.set_column(at, name, pa.array(function(table[name].to_pylist()), table.schema.field(name).type))

    return change


def scaled(lists: list[list[float]]) -> list[list[float]]:
    return [[value * 1.5 for value in values] for values in lists]


def moved_shape(shapes: list[bytes]) -> list[bytes]:
    return [shapes[1], *shapes[1:]]


REFUSED = {
    "another format version": (with_head(format_version=FORMAT_VERSION + 1), "another format version"),
    "no format version": (with_head(format_version=None), "another format version"),
    "another region": (with_head(region={**vars(REGIONS["town"]), "name": "x"}), "differs from its checksum"),
    "a region that is none": (with_head(region={"name": "x"}), "changed or damaged"),
    "another off-road share": (with_head(off_road=0.06), "differs from its checksum"),
    "no off-road share": (with_head(off_road=None), "changed or damaged"),
    "another relation": (with_head(neighbours="replace-one"), "differs from its checksum"),
    "another cell": (with_head(cell_m=51), "changed or damaged"),
    "another licence": (with_head(licence="all rights reserved"), "differs from its checksum"),
    "another digest": (with_head(digest="0" * 64), "differs from its checksum"),
    "heavier roads": (with_column("cell_road_m", scaled), "differs from its checksum"),
    "NaN roads": (with_column("cell_road_m", lambda lists: [[float("nan")] * len(v) for v in lists]), "changed or damaged"),
    "a moved box": (with_column("x1", lambda values: [values[0], *[v + 1 for v in values[1:]]]), "changed or damaged"),
    "a moved polygon": (with_column("geometry", moved_shape), "differs from its checksum"),
    "no cells": (with_column("cell_x", lambda lists: [[] for _ in lists]), "changed or damaged"),
    "null cells": (with_column("cell_x", lambda lists: [None for _ in lists]), "changed or damaged"),
    "a loop": (with_column("parent", lambda values: [-1, *[0 for _ in values[1:]]]), "changed or damaged"),
    "no parents": (lambda table: table.drop_columns(["parent"]), "changed or damaged"),
    "no metadata": (lambda table: table.replace_schema_metadata(None), "no tiling"),
    "no rows": (lambda table: table.slice(0, 0), "changed or damaged"),
    "fewer rows": (lambda table: table.slice(0, table.num_rows - 1), "changed or damaged"),
}


@pytest.mark.parametrize("what", sorted(REFUSED))
def test_a_changed_file_is_refused_in_one_sentence(what: str, path: Path) -> None:
    change, words = REFUSED[what]
    rewrite(path, change)
    with pytest.raises(TilingFileError, match=words) as error:
        load_tiling(path)
    assert "\n" not in str(error.value)


def test_a_rewritten_but_equal_file_is_accepted(path: Path) -> None:
    rewrite(path, lambda table: table)
    assert load_tiling(path)[0].digest == tiling_of("town").digest


def test_every_damaged_byte_is_refused_or_of_no_account(path: Path) -> None:
    whole, digest = path.read_bytes(), tiling_of("town").digest
    for at in range(3, len(whole), max(1, len(whole) // 150)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            tiling, origin = load_tiling(path)
        except TilingFileError:
            continue
        assert (tiling.digest, origin) == (digest, ORIGIN)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "no Parquet file"), (b"PAR1" * 10, "no Parquet file"), (b"\x80\x04K\x01.", "no Parquet file"), (None, "exist")],
)
def test_other_files_are_refused(content: bytes | None, words: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "t").write_bytes(content)
    with pytest.raises(TilingFileError, match=words):
        load_tiling(tmp_path / "t")
    with pytest.raises(TilingFileError, match="cannot be read"):
        load_tiling(tmp_path)
