"""A tiling as one file: GeoParquet that maps open, with a version and checksums that jobs insist on.

A row is a node. Columns: `node`, `parent` (-1 at the root), `level`, `leaf` (its number, null for inner nodes), `x0` `y0` `x1` `y1` (its
box in lattice cells, half open), `road_m` (metres of road below it), `cell_x` `cell_y` `cell_road_m` (lists: the road cells of a leaf) and
`geometry` (null for "elsewhere"). File metadata `geo` is GeoParquet's; `wayveil` holds the region, the cell size, the off-road share, where
the roads come from, what the tiling was built for, and the digests. The geometry is for maps alone: jobs use the boxes.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from geo.plane import Plane, Region
from geo.privacy.tree_counts import Neighbours
from geo.tiling.shapes import wkb_on_ground
from geo.tiling.tiling import Tiling
from geo.tree import Tree

__all__ = ["FORMAT_VERSION", "Origin", "TilingFileError", "load_tiling", "save_tiling"]

FORMAT_VERSION = 2
GEOPARQUET_VERSION = "1.1.0"
KEY = b"wayveil"


class TilingFileError(ValueError):
    """The file is no usable tiling; one sentence tells why."""


@dataclass(frozen=True)
class Origin:
    """Where a tiling comes from; all of it public.

    Parameters
    ----------
    source : str
        What the roads or places are, with their owner.
    licence : str
        Under which terms they are used.
    expected_users : float
        Users expected per tick, for which the number of leaves was chosen.
    epsilon : float
        ε of one published tree, likewise.
    neighbours : "replace-one" or "add-remove"
        What that ε protects, likewise.
    """

    source: str
    licence: str
    expected_users: float
    epsilon: float
    neighbours: Neighbours


def save_tiling(path: Path, tiling: Tiling, origin: Origin) -> None:
    """Write a tiling; the file appears whole or not at all.

    Parameters
    ----------
    path : Path
        File to write or replace, `.parquet` by custom.
    tiling : Tiling
    origin : Origin
    """
    geometry = wkb_on_ground(tiling.lattice, tiling.box)
    region = tiling.plane.region
    head = {
        "format_version": FORMAT_VERSION,
        "region": {**asdict(region), **{side: float(getattr(region, side)) for side in ("south", "west", "north", "east")}},
        "cell_m": int(tiling.cell_m),
        "off_road": float(tiling.off_road),
        "digest": tiling.digest,
        **asdict(origin),
    }
    head["checksum"] = _checksum(head, geometry)
    column = {"encoding": "WKB", "geometry_types": ["Polygon", "MultiPolygon"], "orientation": "counterclockwise", "edges": "planar"}
    # Without `crs`, coordinates are longitude and latitude in OGC:CRS84 (GeoParquet 1.1.0).
    geo = {"version": GEOPARQUET_VERSION, "primary_column": "geometry", "columns": {"geometry": column}}
    metadata = {b"geo": json.dumps(geo).encode(), KEY: json.dumps(head, ensure_ascii=False).encode()}
    table = pa.table(_columns(tiling, geometry)).replace_schema_metadata(metadata)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        pq.write_table(table, part, compression="zstd", write_page_checksum=True)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def load_tiling(path: Path) -> tuple[Tiling, Origin]:
    """Read a tiling back.

    Parameters
    ----------
    path : Path
        File that `save_tiling` wrote.

    Returns
    -------
    tiling : Tiling
        Checked as a newly made one is, and against the digest in the file.
    origin : Origin

    Raises
    ------
    TilingFileError
        If the file cannot be read, is no tiling, has another format version, or differs from its checksums.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            head = json.loads((file.schema_arrow.metadata or {}).get(KEY, b"null"))
            if not isinstance(head, dict):
                raise TilingFileError(f"`{path}` is a Parquet file, but no tiling: build one with `wayveil tiling build`.")
            if head.get("format_version") != FORMAT_VERSION:
                raise TilingFileError(
                    f"`{path}` has another format version than {FORMAT_VERSION}: build the tiling again with this program."
                )
            table = file.read()
        tiling, origin = _tiling(head, table), Origin(*(head[name] for name in Origin.__dataclass_fields__))
        expected = _checksum({name: value for name, value in head.items() if name != "checksum"}, table["geometry"].to_pylist())
        if head["digest"] != tiling.digest or head["checksum"] != expected:
            raise TilingFileError(f"`{path}` differs from its checksum: it was changed or damaged after it was built.")
    except TilingFileError:
        raise
    except FileNotFoundError:
        raise TilingFileError(f"`{path}` does not exist: build a tiling with `wayveil tiling build`.") from None
    except pa.ArrowInvalid:
        raise TilingFileError(f"`{path}` is no Parquet file: build a tiling with `wayveil tiling build`.") from None
    except (OSError, pa.ArrowException, ValueError, TypeError, KeyError, AttributeError) as error:
        raise TilingFileError(f"`{path}` cannot be read as a tiling: it was changed or damaged ({type(error).__name__}).") from error
    return tiling, origin


def _columns(tiling: Tiling, geometry: list[bytes | None]) -> dict[str, Any]:
    tree, leaves = tiling.tree, tiling.tree.leaves
    number = np.full(len(tree), -1, np.int64)
    number[leaves] = np.arange(len(leaves))
    counts = np.zeros(len(tree), np.int64)
    counts[leaves] = np.diff(tiling.cell_start)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    cells = (tiling.cell_xy[:, 0], tiling.cell_xy[:, 1], tiling.cell_weight)
    # Road cells lie leaf by leaf, and leaves in the order of nodes.
    x, y, road = (
        pa.ListArray.from_arrays(offsets, pa.array(part, kind))
        for part, kind in zip(cells, (pa.int32(), pa.int32(), pa.float64()), strict=True)
    )
    road_m = np.zeros(len(tree))
    road_m[leaves] = tiling.leaf_weight
    for part in reversed(tree.levels[1:]):
        np.add.at(road_m, tree.parent[part], road_m[part])
    return {
        "node": pa.array(np.arange(len(tree)), pa.int32()),
        "parent": pa.array(tree.parent, pa.int32()),
        "level": pa.array(tree.level, pa.int32()),
        "leaf": pa.array(number, pa.int32(), mask=number < 0),
        **{name: pa.array(tiling.box[:, at], pa.int32()) for at, name in enumerate(("x0", "y0", "x1", "y1"))},
        "road_m": pa.array(road_m, pa.float64()),
        "cell_x": x,
        "cell_y": y,
        "cell_road_m": road,
        "geometry": pa.array(geometry, pa.binary()),
    }


def _tiling(head: dict[str, Any], table: Any) -> Tiling:
    tree = Tree(_numbers(table["parent"]))
    box = np.stack([_numbers(table[name]) for name in ("x0", "y0", "x1", "y1")], axis=1)
    lists = [table[name].combine_chunks() for name in ("cell_x", "cell_y", "cell_road_m")]
    counts = [_numbers(column.value_lengths()) for column in lists]
    x, y = (_numbers(column.flatten()) for column in lists[:2])
    road = np.asarray(lists[2].flatten().to_numpy(zero_copy_only=False), np.float64)
    start = np.concatenate([[0], np.cumsum(counts[0][tree.leaves])])
    if any((count != counts[0]).any() for count in counts) or len(road) != start[-1]:
        raise ValueError("road cells do not belong to leaves")
    plane, cell_xy = Plane(Region(**head["region"])), np.stack([x, y], axis=1)
    return Tiling(plane, head["cell_m"], tree, box, cell_xy, road, start, head["off_road"])


def _numbers(column: Any) -> NDArray[np.int64]:
    if column.null_count:
        raise ValueError("a number is missing")
    return np.asarray(column.to_numpy(), np.int64)


def _checksum(head: dict[str, Any], geometry: list[bytes | None]) -> str:
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for shape in geometry:
        digest.update(len(shape or b"").to_bytes(8, "little") + (shape or b""))
    return digest.hexdigest()
