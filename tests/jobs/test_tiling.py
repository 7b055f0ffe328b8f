"""The tiling programs: roads and places from files of all kinds, what is left out and told, and what is refused in one sentence."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyproj import Geod
from typer.testing import CliRunner

from geo.plane import Plane, Region
from geo.tiling.lattice import Lattice
from jobs.errors import UserError
from jobs.tiling.cli import tiling_app
from jobs.tiling.picture import write_picture
from jobs.tiling.places import Places, RoadCells, road_cells
from jobs.tiling.program import Plan, build_tiling, read_tiling
from jobs.tiling.readers import ROADS, read_places
from streaming.tiling_file import Origin, load_tiling

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
TOWN = Region("town", 60.16, 24.93, 60.18, 24.96)
LATTICE = Lattice(Plane(TOWN), 25)
DATE_LINE = Lattice(Plane(Region("date line", -18.0, 179.0, -16.0, -179.0)), 500)
NODES = {1: (24.94, 60.17), 2: (24.945, 60.17), 3: (24.95, 60.171), 4: (24.95, 60.172), 8: (25.2, 60.17), 9: (25.21, 60.17)}
WAYS = {
    10: ([1, 2, 3], "residential"),
    11: ([3, 77, 4, 2], "primary"),  # node 77 is not in the extract: 3 alone, then 4 – 2
    12: ([1, 77], "primary"),  # nothing left of it
    13: ([8, 9], "secondary"),  # outside the region
    14: ([1, 4], "footway"),
}


def length_m(*nodes: int) -> float:
    lon, lat = zip(*(NODES[node] for node in nodes), strict=True)
    return float(Geod(ellps="WGS84").line_length(lon, lat))


def overpass(ways: bool = True, **extra: Any) -> dict[str, Any]:
    elements: list[dict[str, Any]] = [{"type": "node", "id": key, "lon": lon, "lat": lat} for key, (lon, lat) in NODES.items()]
    elements += [{"type": "way", "id": key, "nodes": nodes, "tags": {"highway": kind}} for key, (nodes, kind) in WAYS.items() if ways]
    return {"elements": elements, **extra}


def write_overpass(folder: Path) -> Path:
    path = folder / "town.json.gz"
    path.write_bytes(gzip.compress(json.dumps(overpass()).encode()))
    return path


def write_overpass_with_geometry(folder: Path) -> Path:
    def at(node: int) -> dict[str, float] | None:
        return {"lon": NODES[node][0], "lat": NODES[node][1]} if node in NODES else None

    ways = [
        {"type": "way", "id": key, "geometry": [at(node) for node in nodes], "tags": {"highway": kind}}
        for key, (nodes, kind) in WAYS.items()
    ]
    path = folder / "town.json"
    path.write_text(json.dumps({"elements": ways}))
    return path


def write_pbf(folder: Path) -> Path:
    osmium = pytest.importorskip("osmium", reason="the extra `tiling` is not installed")
    path = folder / "town.osm.pbf"
    with osmium.SimpleWriter(str(path)) as writer:
        for key, place in NODES.items():
            writer.add_node(osmium.osm.mutable.Node(id=key, location=place, tags={"highway": "crossing"}))
        for key, (nodes, kind) in WAYS.items():
            writer.add_way(osmium.osm.mutable.Way(id=key, nodes=nodes, tags={"highway": kind}))
        writer.add_way(osmium.osm.mutable.Way(id=15, nodes=[1, 4], tags={"building": "yes"}))
    return path


@pytest.mark.parametrize("write", [write_overpass, write_overpass_with_geometry, write_pbf])
def test_roads_of_an_extract_are_read_with_what_is_cut_and_left_out(write: Any, tmp_path: Path) -> None:
    places = read_places(write(tmp_path))
    assert (places.source, places.licence) == ("OpenStreetMap contributors", "ODbL 1.0")
    assert (places.features, places.incomplete, places.unplaced) == (4, 1, 1)
    found = road_cells(places, LATTICE)
    assert found.outside == 1
    assert found.road_m.sum() == pytest.approx(length_m(1, 2, 3) + length_m(4, 2), rel=1e-3)
    assert len(np.unique(found.cell_xy, axis=0)) == len(found.cell_xy)


def test_foot_and_building_sites_are_no_roads() -> None:
    assert ROADS.isdisjoint({"footway", "path", "cycleway", "steps", "construction", "proposed", "crossing", "bus_stop", "platform"})
    assert {"motorway", "residential", "service", "tertiary_link"} <= ROADS


def features(*geometries: Any) -> dict[str, Any]:
    return {"type": "FeatureCollection", "features": [{"type": "Feature", "geometry": geometry} for geometry in geometries]}


def geometry(kind: str, coordinates: Any) -> dict[str, Any]:
    return {"type": kind, "coordinates": coordinates}


def write_geojson(folder: Path, document: Any) -> Path:
    path = folder / "places.geojson"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


RING = [[24.94, 60.17], [24.945, 60.17], [24.945, 60.172], [24.94, 60.172], [24.94, 60.17]]


def test_points_lines_and_areas_of_geojson_weigh_as_documented(tmp_path: Path) -> None:
    def weigh(*geometries: Any) -> RoadCells:
        return road_cells(read_places(write_geojson(tmp_path, features(*geometries))), LATTICE)

    assert weigh(geometry("Point", [24.94, 60.17, 12.0])).road_m.tolist() == [25.0]
    assert weigh(geometry("MultiPoint", [[24.94, 60.17], [24.95, 60.17]])).road_m.tolist() == [25.0, 25.0]
    line = geometry("LineString", [NODES[1], NODES[2]])
    assert weigh(line).road_m.sum() == pytest.approx(length_m(1, 2), rel=1e-3)
    assert weigh(geometry("MultiLineString", [line["coordinates"]] * 2)).road_m.sum() == pytest.approx(2 * length_m(1, 2), rel=1e-3)
    # Half of 0.005 × 0.002 degrees at 60.171 N, in cells of 25 m, 25 m of road in each.
    area = 0.005 * 55_512 * 0.002 * 111_416
    assert weigh(geometry("Polygon", [RING])).road_m.sum() == pytest.approx(area / 25, rel=2e-3)
    both = {"type": "GeometryCollection", "geometries": [geometry("MultiPolygon", [[RING]]), line]}
    assert weigh(both).road_m.sum() == pytest.approx(area / 25 + length_m(1, 2), rel=2e-3)


def test_places_outside_and_without_a_geometry_are_left_out_and_counted(tmp_path: Path) -> None:
    points = [geometry("Point", [24.94, 60.17])] * 3 + [geometry("Point", [121.5, 31.2])] * 2
    path = write_geojson(tmp_path, features(*points, None, geometry("Point", [])))
    lines: list[str] = []
    build_tiling(Plan(TOWN, (path,), 100.0, 1.0, 25, tmp_path / "t.parquet"), lines.append)
    assert lines[0] == (
        "places.geojson: 7 roads and places, 2 outside the region and 2 without a geometry left out; 0 cut at the edge of the file"
    )


def test_the_owner_that_geojson_names_is_kept(tmp_path: Path) -> None:
    path = write_geojson(tmp_path, {**features(geometry("Point", [24.94, 60.17])), "attribution": "© the town", "license": "CC BY 4.0"})
    build_tiling(Plan(TOWN, (path, write_overpass(tmp_path)), 100.0, 1.0, 25, tmp_path / "t.parquet"), lambda _: None)
    origin = load_tiling(tmp_path / "t.parquet")[1]
    assert origin == Origin("© the town; OpenStreetMap contributors", "CC BY 4.0; ODbL 1.0", 100.0, 1.0, "replace-one")


def test_roads_and_areas_over_the_antimeridian_are_short(tmp_path: Path) -> None:
    step = geometry("LineString", [[179.9, -17.0], [-179.9, -17.0]])
    found = road_cells(read_places(write_geojson(tmp_path, features(step))), DATE_LINE)
    assert found.road_m.sum() == pytest.approx(21_294, rel=0.005)
    halves = [[[[west, -17], [west + 0.1, -17], [west + 0.1, -16.9], [west, -16.9], [west, -17]]] for west in (179.9, -180.0)]
    found = road_cells(read_places(write_geojson(tmp_path, features(geometry("MultiPolygon", halves)))), DATE_LINE)
    assert found.outside == 0
    assert found.road_m.sum() == pytest.approx(21_294 * 11_064 / 500, rel=0.01)


EMPTY = "holds no roads or places"
CROSSED = [[24.94, 60.17], [24.95, 60.18], [24.95, 60.17], [24.94, 60.18], [24.94, 60.17]]
WIDE = [[-179, -10], [179, -10], [179, 10], [-179, 10], [-179, -10]]
BAD: dict[str, tuple[Any, str]] = {
    "no features": (features(), EMPTY),
    "only nulls": (features(None, None), EMPTY),
    "an Overpass answer without ways": (overpass(ways=False), EMPTY),
    "an Overpass answer that broke off": (overpass(remark="runtime error: Query timed out"), "is incomplete.*timed out"),
    "Overpass latitude out of range": (
        {"elements": [{"type": "node", "id": 5, "lat": 1848.7, "lon": 1.0}]},
        "node 5 has a position out of",
    ),
    "Overpass without longitude": ({"elements": [{"type": "node", "id": 5, "lat": 60.0}]}, "node 5 has a position that is not two numbers"),
    "all elsewhere": (features(*[geometry("Point", [121.5, 31.2])] * 3), "None of the 3 .* lies in region 'town'"),
    "axes swapped": (features(geometry("Point", [39.9, 116.4])), "feature 1 .* out of range: longitude comes first"),
    "out of range": (features(geometry("Point", [-270.6, 12.3])), "out of range"),
    "NaN": ('{"type":"Point","coordinates":[NaN,60]}', "is not JSON"),
    "Infinity": ('{"type":"Point","coordinates":[1e999,60]}', "is not JSON|out of range"),
    "null": (features(geometry("Point", [24.94, 60.17]), geometry("Point", [None, 60.17])), "feature 2 .* not two numbers"),
    "text": (features(geometry("Point", ["24.94", "60.17"])), "not two numbers"),
    "truth": (features(geometry("Point", [True, 60.17])), "not two numbers"),
    "one number": (features(geometry("Point", [24.94])), "not two numbers"),
    "no list": (features(geometry("LineString", "abc")), "no list"),
    "a line of one position": (features(geometry("LineString", [[24.94, 60.17]])), "fewer than two"),
    "a ring of two positions": (features(geometry("Polygon", [RING[:2]])), "no usable area"),
    "no ring": (features(geometry("MultiPolygon", [[]])), "no usable area"),
    "self-crossing": (features(geometry("Point", [24.94, 60.17]), geometry("Polygon", [CROSSED])), "feature 2 .* self-intersection"),
    "round the world": (features(geometry("Polygon", [WIDE])), "Feature 1 .* 180 degrees wide"),
    "unknown geometry": (features({"type": "Circle", "coordinates": [1, 2]}), "'Circle'"),
    "a feature that is none": ({"type": "FeatureCollection", "features": [7]}, "feature 1 is no object"),
    "no list of features": ({"type": "FeatureCollection"}, "list of features"),
    "another document": ({"hello": 1}, "neither an Overpass answer"),
    "a list": ([1, 2], "neither an Overpass answer"),
    "no JSON": ("PK\x03\x04", "is not JSON"),
}


@pytest.mark.parametrize("what", sorted(BAD))
def test_a_bad_input_is_refused_in_one_sentence(what: str, tmp_path: Path) -> None:
    document, words = BAD[what]
    path = write_geojson(tmp_path, document)
    with pytest.raises(UserError, match=words) as error:
        build_tiling(Plan(TOWN, (path,), 100.0, 1.0, 25, tmp_path / "t.parquet"), lambda _: None)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "t.parquet").exists()


def test_unreadable_files_are_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b"{}" * 100)[:20])
    (tmp_path / "none.json.gz").write_bytes(b"{}")
    for name, words in (
        ("cut.json.gz", "damaged"),
        ("none.json.gz", "damaged"),
        ("missing.json", "No such file"),
        ("roads.shp", "should end"),
    ):
        with pytest.raises(UserError, match=words):
            read_places(tmp_path / name)


@pytest.mark.parametrize("keep", [0, 20, 150])
def test_an_extract_that_is_cut_short_is_refused(keep: int, tmp_path: Path) -> None:
    path = write_pbf(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match="cannot be read as an OpenStreetMap extract"):
        read_places(path)


def test_an_empty_extract_holds_nothing() -> None:
    with pytest.raises(UserError, match=EMPTY):
        road_cells(Places("empty.osm.pbf", "", ""), LATTICE)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"expected_users": 0.0}, "expected_users"),
        ({"cell_m": 0}, "cell_m"),
        ({"reach": -1, "inputs": "roads"}, "reach"),
        ({"off_road": 1.0}, "off_road"),
        ({"off_road": float("nan")}, "off_road"),
        ({"region": Region("half the world", -60.0, -100.0, 60.0, 100.0)}, "split"),
        ({"out": Path("/dev/null/t.parquet")}, "cannot be written"),
    ],
)
def test_numbers_out_of_range_are_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    values = {"region": TOWN, "inputs": (), "expected_users": 100.0, "epsilon": 1.0, "cell_m": 25, "out": tmp_path / "t.parquet"}
    if change.get("inputs"):
        change = {**change, "inputs": (write_overpass(tmp_path),)}
    with pytest.raises(UserError, match=words):
        build_tiling(Plan(**{**values, **change}), lambda _: None)


def test_the_commands_build_and_draw(tmp_path: Path) -> None:
    built, picture = tmp_path / "new" / "t.parquet", tmp_path / "t.png"
    options = ["--users", "1000", "--epsilon", "0.1", "--name", "town", "--out", str(built)]
    place = ["--region", "60.16", "24.93", "60.18", "24.96"]
    result = CliRunner().invoke(tiling_app, ["build", str(write_overpass(tmp_path)), *options, *place], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    tiling = read_tiling(built)[0]
    assert f"tiling {tiling.version} of region 'town': 6 tiles" in result.output
    assert "1 outside the region" in result.output
    assert f"{tiling.cell_weight.sum() / 1000:.1f} km of road in {len(tiling.cell_weight)} cells of 25 m" in result.output
    assert tiling.plane.region == TOWN
    result = CliRunner().invoke(tiling_app, ["show", str(built), "--out", str(picture)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_region_over_the_antimeridian_is_built_from_its_box_alone_and_drawn(tmp_path: Path) -> None:
    built = tmp_path / "t.parquet"
    options = ["--users", "1600", "--epsilon", "0.2", "--cell-m", "1000", "--out", str(built)]
    place = ["--region", "-20", "177", "-12", "-178"]
    result = CliRunner().invoke(tiling_app, ["build", *options, *place], catch_exceptions=False)
    assert "20 tiles" in result.output
    assert "no roads" in result.output
    write_picture(tmp_path / "t.svg", *read_tiling(built))
    assert (tmp_path / "t.svg").read_text().startswith("<?xml")


def test_the_region_comes_from_the_settings_too(tmp_path: Path) -> None:
    settings = tmp_path / "wayveil.toml"
    settings.write_text('[region]\nname = "town"\nsouth = 60.16\nwest = 24.93\nnorth = 60.18\neast = 24.96\n[secret]\nenv = "X"\n')
    options = ["--users", "100", "--epsilon", "1", "--out", str(tmp_path / "t.parquet")]
    CliRunner().invoke(tiling_app, ["build", *options, "--settings", str(settings)], catch_exceptions=False)
    assert read_tiling(tmp_path / "t.parquet")[0].plane.region == TOWN
    for choice in ([], ["--settings", str(settings), "--region", "1", "2", "3", "4"]):
        with pytest.raises(UserError, match="exactly one"):
            CliRunner().invoke(tiling_app, ["build", *options, *choice], catch_exceptions=False)
    with pytest.raises(UserError, match="south"):
        CliRunner().invoke(tiling_app, ["build", *options, "--region", "3", "2", "1", "4"], catch_exceptions=False)


def test_the_relation_comes_from_the_option_or_the_settings_and_decides_how_many_tiles(tmp_path: Path) -> None:
    town = '[region]\nname = "town"\nsouth = 60.16\nwest = 24.93\nnorth = 60.18\neast = 24.96\n[secret]\nenv = "X"\n'
    bare, protected = tmp_path / "bare.toml", tmp_path / "density.toml"
    bare.write_text(town)
    protected.write_text(town + '[density]\ntiling = "t.parquet"\nneighbours = "add-remove"\n')
    for settings, choice, tiles, neighbours in (
        (bare, [], 10, "replace-one"),
        (protected, [], 20, "add-remove"),
        (protected, ["--neighbours", "replace-one"], 10, "replace-one"),
        (bare, ["--neighbours", "add-remove"], 20, "add-remove"),
    ):
        options = ["--users", "160", "--epsilon", "1", "--out", str(tmp_path / "t.parquet"), "--settings", str(settings)]
        CliRunner().invoke(tiling_app, ["build", *options, *choice], catch_exceptions=False)
        tiling, origin = read_tiling(tmp_path / "t.parquet")
        assert (len(tiling.tree.leaves) - 1, origin.neighbours) == (tiles, neighbours)


def test_the_spread_and_the_off_road_share_are_options(tmp_path: Path) -> None:
    roads, built = write_overpass(tmp_path), tmp_path / "t.parquet"
    place = ["--region", "60.16", "24.93", "60.18", "24.96", "--users", "160", "--epsilon", "1", "--out", str(built)]
    cells = []
    for reach, off_road in ((0, 0.0), (1, 0.2)):
        choice = ["--reach", str(reach), "--off-road", str(off_road)]
        CliRunner().invoke(tiling_app, ["build", str(roads), *place, *choice], catch_exceptions=False)
        tiling = read_tiling(built)[0]
        assert tiling.off_road == off_road
        cells.append(len(tiling.cell_weight))
    assert cells[1] > 2 * cells[0]


def test_a_missing_tiling_and_a_picture_of_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        read_tiling(tmp_path / "t.parquet")
    build_tiling(Plan(TOWN, (), 100.0, 1.0, 25, tmp_path / "t.parquet"), lambda _: None)
    with pytest.raises(UserError, match="should end in"):
        write_picture(tmp_path / "t.txt", *read_tiling(tmp_path / "t.parquet"))


SAMPLES = {
    "Helsinki.osm.pbf": (Region("Helsinki", 60.16, 24.93, 60.185, 24.96), 1058, 41.5),
    "san_francisco_overpass.json.gz": (Region("San Francisco", 37.6, -122.55, 37.85, -122.3), 3251, 330.7),
}


@pytest.mark.skipif(not (DATA / "roads").is_dir(), reason="the road samples are not beside this checkout")
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_real_roads_give_tiles_with_similar_shares(name: str, tmp_path: Path) -> None:
    if name.endswith(".pbf"):
        pytest.importorskip("osmium", reason="the extra `tiling` is not installed")
    region, roads, kilometres = SAMPLES[name]
    lines: list[str] = []
    tiling = build_tiling(Plan(region, (DATA / "roads" / name,), 10_000.0, 0.16, 25, tmp_path / "t.parquet"), lines.append)
    assert f"{roads} roads and places" in lines[0]
    assert tiling.cell_weight.sum() / 1000 == pytest.approx(kilometres, abs=0.1)
    assert len(tiling.tree.leaves) == 101
    box = tiling.box[tiling.tree.leaves]
    area = np.prod(box[:, 2:] - box[:, :2], axis=1) / np.prod(tiling.lattice.shape)
    share = np.delete(0.95 * tiling.leaf_weight / tiling.cell_weight.sum() + 0.05 * area, tiling.elsewhere)
    assert share.min() > 0.005
    assert share.max() < 0.02
