"""Anchors survive their file, other programs can open it, and a file that is not what was built is refused."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from geo.anchors.index import AnchorIndex
from geo.plane import Plane, Region
from streaming.anchor_file import FORMAT_VERSION, AnchorFileError, AnchorOrigin, load_anchors, save_anchors
from streaming.tiling_file import TilingFileError, load_tiling

ORIGIN = AnchorOrigin("places of nowhere, © nobody", "CC0")
REGION = Region("Töwn", 60.15, 24.9, 60.19, 25.0)


def anchors_of_town() -> AnchorIndex:
    names = ("café", "clinic", "shop", "worship")
    lat = [60.16 + at * 1e-4 for at in range(40)]
    categories = [[at % 3, 3] if at % 5 == 0 else [at % 3] for at in range(40)]
    popularity = [at / 7 for at in range(40)]
    return AnchorIndex(Plane(REGION), names, [f"näde/{at}" for at in range(40)], lat, [24.95] * 40, categories, popularity)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "anchors.parquet"
    save_anchors(path, anchors_of_town(), ORIGIN)
    return path


def test_anchors_come_back_as_they_were(path: Path) -> None:
    before, (back, origin) = anchors_of_town(), load_anchors(path)
    assert origin == ORIGIN
    assert (back.digest, back.ids, back.category_names) == (before.digest, before.ids, before.category_names)
    assert back.codes.tolist() == before.codes.tolist()
    assert back.plane.region == REGION
    assert [entry.name for entry in path.parent.iterdir()] == ["anchors.parquet"]


def test_anchors_across_the_antimeridian_come_back(tmp_path: Path) -> None:
    region = Region("antimeridian", -20, 177, -12, -178)
    anchors = AnchorIndex(Plane(region), ["a"], ["x", "y"], [-15.0, -16.0], [179.0, -179.0], [[0], [0]])
    save_anchors(tmp_path / "a.parquet", anchors, ORIGIN)
    assert load_anchors(tmp_path / "a.parquet")[0].digest == anchors.digest


def test_the_file_is_geoparquet_of_points(path: Path) -> None:
    table = pq.read_table(path)
    geo = json.loads(table.schema.metadata[b"geo"])
    assert (geo["version"], geo["columns"]["geometry"]["geometry_types"]) == ("1.1.0", ["Point"])
    points = shapely.from_wkb(table["geometry"].to_pylist())
    assert shapely.get_x(points).tolist() == table["lon"].to_pylist()
    assert shapely.get_y(points).tolist() == table["lat"].to_pylist()


def with_head(**values: Any) -> Any:
    def change(table: Any) -> Any:
        metadata = dict(table.schema.metadata)
        metadata[b"wayveil.anchors"] = json.dumps({**json.loads(metadata[b"wayveil.anchors"]), **values}).encode()
        return table.replace_schema_metadata(metadata)

    return change


def with_column(name: str, function: Any) -> Any:
    def change(table: Any) -> Any:
        at = table.schema.get_field_index(name)
        return table.set_column(at, name, pa.array(function(table[name].to_pylist()), table.schema.field(name).type))

    return change


REFUSED = {
    "another format version": (with_head(format_version=FORMAT_VERSION + 1), "another format version"),
    "another region": (with_head(region={**vars(REGION), "name": "x"}), "differs from its checksum"),
    "a region that is none": (with_head(region={"name": "x"}), "changed or damaged"),
    "another licence": (with_head(licence="all rights reserved"), "differs from its checksum"),
    "another digest": (with_head(digest="0" * 64), "differs from its checksum"),
    "other categories": (with_head(category_names=["café", "clinic", "shop", "z"]), "changed or damaged"),
    "more categories": (with_head(category_names=["café", "clinic", "shop", "worship", "z"]), "differs from its checksum"),
    "a moved anchor": (with_column("lat", lambda values: [values[0] + 1e-9, *values[1:]]), "differs from its checksum"),
    "an anchor far away": (with_column("lat", lambda values: [0.0, *values[1:]]), "changed or damaged"),
    "NaN": (with_column("lon", lambda values: [float("nan"), *values[1:]]), "changed or damaged"),
    "a missing number": (with_column("popularity", lambda values: [None, *values[1:]]), "changed or damaged"),
    "an id twice": (with_column("id", lambda values: [values[1], *values[1:]]), "changed or damaged"),
    "no category": (with_column("categories", lambda values: [[], *values[1:]]), "changed or damaged"),
    "another category": (with_column("categories", lambda values: [["shop"], *values[1:]]), "differs from its checksum"),
    "a moved point": (with_column("geometry", lambda values: [values[1], *values[1:]]), "differs from its checksum"),
    "no ids": (lambda table: table.drop_columns(["id"]), "changed or damaged"),
    "no metadata": (lambda table: table.replace_schema_metadata(None), "no anchors"),
    "no rows": (lambda table: table.slice(0, 0), "changed or damaged"),
    "fewer rows": (lambda table: table.slice(0, table.num_rows - 1), "differs from its checksum"),
}


@pytest.mark.parametrize("what", sorted(REFUSED))
def test_a_changed_file_is_refused_in_one_sentence(what: str, path: Path) -> None:
    change, words = REFUSED[what]
    pq.write_table(change(pq.read_table(path)), path)
    with pytest.raises(AnchorFileError, match=words) as error:
        load_anchors(path)
    assert "\n" not in str(error.value)


def test_a_rewritten_but_equal_file_is_accepted(path: Path) -> None:
    pq.write_table(pq.read_table(path), path)
    assert load_anchors(path)[0].digest == anchors_of_town().digest


def test_every_damaged_byte_is_refused_or_of_no_account(path: Path) -> None:
    whole, digest = path.read_bytes(), anchors_of_town().digest
    for at in range(3, len(whole), max(1, len(whole) // 150)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            anchors, origin = load_anchors(path)
        except AnchorFileError:
            continue
        assert (anchors.digest, origin) == (digest, ORIGIN)


@pytest.mark.parametrize(("content", "words"), [(b"", "no Parquet file"), (b"PAR1" * 10, "no Parquet file"), (None, "exist")])
def test_other_files_are_refused(content: bytes | None, words: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "t").write_bytes(content)
    with pytest.raises(AnchorFileError, match=words):
        load_anchors(tmp_path / "t")


def test_anchors_are_no_tiling(path: Path) -> None:
    with pytest.raises(TilingFileError, match="no tiling"):
        load_tiling(path)
