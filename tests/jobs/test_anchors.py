"""The anchor programs: places from files of all kinds, what is left out and told, what is refused, and the evaluation."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from geo.plane import Region
from jobs.anchors.categories import CATEGORIES, OSM_KEYS, coarse
from jobs.anchors.cli import anchors_app, split_keys
from jobs.anchors.program import Plan, build_anchors, read_anchors
from jobs.anchors.readers import Columns, categories_of
from jobs.errors import UserError
from jobs.evaluate import anchors as evaluation
from jobs.evaluate.cli import evaluate_app

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
TOWN = Region("town", 60.16, 24.93, 60.18, 24.96)
KIND = Columns(("kind=value",))
RING = [[24.94, 60.17], [24.945, 60.17], [24.945, 60.172], [24.94, 60.172], [24.94, 60.17]]


def feature(place: Any, name: Any = None, kind: str = "Point", **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "id": name, "properties": properties, "geometry": place and {"type": kind, "coordinates": place}}


def write_geojson(folder: Path, *features: Any, **head: Any) -> Path:
    path = folder / "places.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features, **head}))
    return path


def build(folder: Path, source: Path, columns: Columns = Columns(), region: Region = TOWN) -> Any:  # noqa: B008
    said: list[str] = []
    return build_anchors(Plan(region, source, columns, folder / "a.parquet"), said.append), said


def names_of(anchors: Any, number: int) -> list[str]:
    return [anchors.category_names[code] for code in anchors.codes[number] if code >= 0]


def test_geojson_points_and_areas_become_anchors(tmp_path: Path) -> None:
    source = write_geojson(
        tmp_path,
        feature([24.94, 60.17], "n1", amenity="restaurant", shop="no"),
        feature([RING], "w2", kind="Polygon", amenity="hospital"),
        feature([[RING]], "w3", kind="MultiPolygon", shop="books", amenity="cafe"),
        feature([24.95, 60.17], "n4", highway="crossing"),
        feature([25.5, 60.17], "n5", amenity="cafe"),
        feature(None, "n6", amenity="cafe"),
        attribution="© the town",
    )
    anchors, said = build(tmp_path, source)
    assert said == ["places.geojson: 3 anchors; left out 1 outside the region, 1 without a category and 1 without a position"]
    assert anchors.ids == ("n1", "w2", "w3")
    assert [names_of(anchors, at) for at in range(3)] == [["food"], ["health"], ["food", "shop"]]
    assert (np.abs(anchors.lat[1:] - 60.171) < 1e-3).all()
    assert anchors.category_names == CATEGORIES
    back, origin = read_anchors(tmp_path / "a.parquet")
    assert back.digest == anchors.digest
    assert (origin.source, origin.licence) == ("© the town", "see source")


def test_categories_come_from_keys_pairs_and_texts() -> None:
    assert categories_of({"kind": "amenity", "value": "nightclub; Restaurant"}, ("kind=value",)) == ("nightlife", "food")
    assert categories_of({"kind": "highway", "value": "crossing"}, ("kind=value",)) == ()
    assert categories_of({"type": "Tea House;food"}, ("type",)) == ("tea house", "food")
    assert categories_of({"amenity": "pharmacy", "healthcare": "pharmacy"}, OSM_KEYS) == ("health",)
    assert categories_of({"railway": "rail"}, OSM_KEYS) == ()
    assert coarse("shop", "anything") == "shop"
    assert split_keys("amenity, kind=value") == ("amenity", "kind=value")
    for bad in ("", "a,,b", "=b", "a=", "a=b=c"):
        with pytest.raises(UserError, match="--category-from"):
            split_keys(bad)


def test_an_extract_gives_nodes_and_ways(tmp_path: Path) -> None:
    osmium = pytest.importorskip("osmium", reason="the extra `tiling` is not installed")
    path = tmp_path / "town.osm.pbf"
    make = osmium.osm.mutable
    with osmium.SimpleWriter(str(path)) as writer:
        for at, (lon, lat) in enumerate(RING[:4], start=1):
            writer.add_node(make.Node(id=at, location=(lon, lat), tags={"amenity": "bench"} if at == 1 else {"highway": "stop"}))
        writer.add_way(make.Way(id=10, nodes=[1, 2, 3, 4, 1], tags={"amenity": "school"}))
        writer.add_way(make.Way(id=11, nodes=[1, 2], tags={"railway": "rail"}))
        writer.add_way(make.Way(id=12, nodes=[77, 78], tags={"shop": "books"}))
    anchors, said = build(tmp_path, path)
    assert anchors.ids == ("node/1", "way/10")
    assert [names_of(anchors, at) for at in (0, 1)] == [["street"], ["education"]]
    assert anchors.lat[1] == pytest.approx(60.171, abs=5e-4)
    assert "1 without a category and 1 without a position" in said[0]


def write_csv(folder: Path, *lines: str) -> Path:
    path = folder / "places.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_csv_columns_become_anchors(tmp_path: Path) -> None:
    source = write_csv(tmp_path, "key,latitude,longitude,type,visits", "b,60.17,24.94,food;shop,3", 'a,60.171,24.95,"clinic",0.5')
    anchors, _ = build(tmp_path, source, Columns(("type",), "key", "visits"))
    assert (anchors.ids, anchors.popularity.tolist()) == (("a", "b"), [0.5, 3.0])
    assert anchors.category_names == ("clinic", "food", "shop")
    assert names_of(anchors, 1) == ["food", "shop"]


CSV = "id,lat,lon,type"
BAD_CSV = {
    "NaN": ([CSV, "a,60.17,24.94,x", "b,nan,24.94,x"], "line 3 has a latitude that is no number"),
    "text": ([CSV, "a,60.17,east,x"], "line 2 has a longitude that is no number"),
    "out of range": ([CSV, "a,60.17,24.94,x", "b,160.17,24.94,x"], r"line 3 has a latitude out of range.*swapped"),
    "an id twice": ([CSV, "a,60.17,24.94,x", "b,60.17,24.94,x", "a,60.17,24.94,x"], "line 4 has the id 'a' that line 2 has"),
    "no id": ([CSV, ",60.17,24.94,x"], "line 2 has no id"),
    "a short line": ([CSV, "a,60.17,24.94"], "line 2 has another number of columns"),
    "a long line": ([CSV, "a,60.17,24.94,x,y"], "line 2 has another number of columns"),
    "no latitude": (["id,lon,type", "a,24.9,x"], "columns lat and lon"),
    "no category column": (["id,lat,lon", "a,60.17,24.94"], "no column 'type'"),
    "no place": ([CSV], "no place with a category"),
    "empty": ([""], "columns lat and lon"),
    "swapped axes": ([CSV, "a,24.94,60.17,x", "b,24.95,60.17,x", "c,24.95,61.17,x"], "swapped.* 2 of 3 places"),
    "all elsewhere": ([CSV, "a,31.2,121.5,x"], "None of the 1 places"),
    "an open quote": ([CSV, 'a,60.17,24.94,"x'], "no CSV in line 2"),
}


@pytest.mark.parametrize("what", sorted(BAD_CSV))
def test_bad_csv_is_refused_by_line(what: str, tmp_path: Path) -> None:
    lines, words = BAD_CSV[what]
    with pytest.raises(UserError, match=words) as error:
        build(tmp_path, write_csv(tmp_path, *lines), Columns(("type",)))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "a.parquet").exists()


GOOD = feature([24.94, 60.17], "g", kind_of="x", amenity="cafe")
BAD_GEOJSON = {
    "text": (feature(["24.94", "60.17"], "x", amenity="cafe"), "feature 2 has a latitude that is no number"),
    "null": (feature([24.94, None], "x", amenity="cafe"), "feature 2 has a latitude that is no number"),
    "truth": (feature([True, 60.17], "x", amenity="cafe"), "feature 2 has a longitude that is no number"),
    "one number": (feature([24.94], "x", amenity="cafe"), "feature 2 should be a Point"),
    "out of range": (feature([39.9, 116.4], "x", amenity="cafe"), "feature 2 has a latitude out of range"),
    "an id twice": (feature([24.94, 60.17], "g", amenity="cafe"), "feature 2 has the id 'g' that feature 1 has"),
    "no id": (feature([24.94, 60.17], amenity="cafe"), "feature 2 has no id"),
    "a line": (feature([[24.94, 60.17], [24.95, 60.17]], "x", kind="LineString", amenity="cafe"), "feature 2 should be a Point"),
    "a crossed area": (
        feature([[RING[0], RING[2], RING[1], RING[3], RING[0]]], "x", kind="Polygon", amenity="cafe"),
        "feature 2 is no usable area",
    ),
    "no ring": (feature([[]], "x", kind="Polygon", amenity="cafe"), "feature 2 is no usable area|feature 2 should"),
    "no feature": (7, "feature 2 is no object"),
}


@pytest.mark.parametrize("what", sorted(BAD_GEOJSON))
def test_bad_geojson_is_refused_by_feature(what: str, tmp_path: Path) -> None:
    bad, words = BAD_GEOJSON[what]
    with pytest.raises(UserError, match=words) as error:
        build(tmp_path, write_geojson(tmp_path, GOOD, bad))
    assert "\n" not in str(error.value)


def test_unreadable_files_are_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b"{}" * 100)[:20])
    (tmp_path / "bad.osm.pbf").write_bytes(b"PK")
    (tmp_path / "nan.json").write_text('{"type":"FeatureCollection","features":[NaN]}')
    (tmp_path / "other.json").write_text("[]")
    (tmp_path / "latin.csv").write_bytes(b"id,lat,lon\n\xe9,1,1\n")
    for name, words in (
        ("cut.json.gz", "damaged"),
        ("bad.osm.pbf", "cannot be read as an OpenStreetMap extract|osmium"),
        ("nan.json", "not JSON"),
        ("other.json", "FeatureCollection"),
        ("latin.csv", "UTF-8"),
        ("missing.csv", "No such file"),
        ("places.shp", "should end"),
    ):
        with pytest.raises(UserError, match=words):
            build(tmp_path, tmp_path / name)
    with pytest.raises(UserError, match="cannot be written"):
        build_anchors(Plan(TOWN, write_geojson(tmp_path, GOOD), Columns(), Path("/dev/null/a.parquet")), lambda _: None)


def test_the_commands_build_and_show(tmp_path: Path) -> None:
    source, out = write_geojson(tmp_path, GOOD, feature([24.95, 60.17], "h", amenity="clinic")), tmp_path / "new" / "a.parquet"
    place = ["--region", "60.16", "24.93", "60.18", "24.96", "--name", "town"]
    built = CliRunner().invoke(anchors_app, ["build", "--from", str(source), *place, "--out", str(out)], catch_exceptions=False)
    shown = CliRunner().invoke(anchors_app, ["show", str(out)], catch_exceptions=False)
    version = read_anchors(out)[0].version
    for result in (built, shown):
        assert result.exit_code == 0, result.output
        assert f"anchors {version} of region 'town': 2 places" in result.output
        assert any(line.split() == ["food", "│", "1", "│", "1", "│", "50.0%"] for line in result.output.splitlines())
    settings = tmp_path / "wayveil.toml"
    settings.write_text('[region]\nname = "town"\nsouth = 60.16\nwest = 24.93\nnorth = 60.18\neast = 24.96\n[secret]\nenv = "X"\n')
    CliRunner().invoke(
        anchors_app, ["build", "--from", str(source), "--settings", str(settings), "--out", str(out)], catch_exceptions=False
    )
    assert read_anchors(out)[0].version == version
    with pytest.raises(UserError, match="exactly one"):
        CliRunner().invoke(anchors_app, ["build", "--from", str(source), "--out", str(out)], catch_exceptions=False)
    with pytest.raises(UserError, match="does not exist"):
        CliRunner().invoke(anchors_app, ["show", str(tmp_path / "none.parquet")], catch_exceptions=False)


def test_the_evaluation_finds_hits_where_noise_is_small_and_guesses_where_it_is_large(tmp_path: Path) -> None:
    kinds = ("cafe", "clinic", "school", "hotel")
    places = [feature([24.90 + 0.02 * x, 60.10 + 0.01 * y], f"{x}-{y}", amenity=kinds[(x + y) % 3]) for x in range(5) for y in range(5)]
    anchors = evaluation.anchors_to_evaluate(write_geojson(tmp_path, *places), Columns())
    result = evaluation.evaluate(anchors, evaluation.Plan(radii_m=(20.0, 5000.0), visits=500, away_m=10.0))
    near, far = result["rows"]
    assert result["without_noise"]["hit"][0] == result["without_noise"]["category"][0] == 1.0
    assert near["hit"][0] > 0.9
    assert far["hit"][0] < 0.2
    assert far["category"][0] == pytest.approx(result["random_guess"]["category"], abs=0.15)
    assert near["unanchored"][0] == pytest.approx(0.05, abs=0.03)
    assert near["metres"]["anchor"]["median"] == pytest.approx(10.0, abs=0.1)
    assert near["metres"]["noisy"]["mean"][0] == pytest.approx(34.0, rel=0.15)
    assert far["metres"]["remap_mean"]["mean"][0] < 0.5 * far["metres"]["noisy"]["mean"][0]


@pytest.mark.parametrize("plan", [{"radii_m": (0.0,)}, {"ratio": 1.0}, {"away_m": float("nan")}, {"visits": 0}])
def test_numbers_out_of_range_are_refused(plan: dict[str, Any], tmp_path: Path) -> None:
    anchors = evaluation.anchors_to_evaluate(write_geojson(tmp_path, GOOD), Columns())
    with pytest.raises(UserError):
        evaluation.evaluate(anchors, evaluation.Plan(**{"visits": 10, **plan}))


def test_the_evaluation_command_prints_and_writes_the_helsinki_sample(tmp_path: Path) -> None:
    sample = DATA / "poi" / "helsinki.poi.geojson"
    if not sample.exists():
        pytest.skip(f"the sample {sample.name} is not there")
    written = tmp_path / "e.json"
    options = ["--category-from", "kind=value", "--radius-m", "50", "--radius-m", "500", "--visits", "1977", "--json", str(written)]
    result = CliRunner().invoke(evaluate_app, ["anchors", str(sample), *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    for words in ("hit@1", "anchored", "remap to mean", "a guess", "commonest"):
        assert words in result.output
    figures = json.loads(written.read_text())
    near, far = figures["rows"]
    assert figures["anchors"]["count"] == figures["visits"] == 1977
    assert near["hit"][0] > 3 * far["hit"][0] > 0
    assert near["category"][0] > far["category"][0]
    assert far["metres"]["remap_mean"]["mean"][0] < far["metres"]["anchor"]["mean"][0] < far["metres"]["noisy"]["mean"][0]
