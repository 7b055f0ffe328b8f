"""A tiling as one file: GeoParquet that maps open, with a version and checksums that jobs insist on.

A row is a node. Columns: `node`, `parent` (-1 at the root), `level`, `leaf` (its number, null for inner nodes), `x0` `y0` `x1` `y1` (its
box in lattice cells, half open), `road_m` (metres of road below it), `cell_x` `cell_y` `cell_road_m` (lists: the road cells of a leaf) and
`geometry` (null for "elsewhere"). File metadata `geo` is GeoParquet's; `wayveil` holds the region, the cell size, the off-road share, where
the roads come from, what the tiling was built for, and the digests. The geometry is for maps alone: jobs use the boxes.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from geo.plane import Plane, Region
from geo.privacy.tree_counts import Neighbours
from geo.tiling.shapes import wkb_on_ground
from geo.tiling.tiling import Tiling
from geo.tree import Tree
from streaming.geoparquet import Kind, read_artefact, region_head, write_artefact

__all__ = ["FORMAT_VERSION", "Origin", "TilingFileError", "load_tiling", "save_tiling"]

FORMAT_VERSION = 2


class TilingFileError(ValueError):
    """The file is no usable tiling; one sentence tells why."""


KIND = Kind("tiling", "a tiling", b"wayveil", FORMAT_VERSION, ("Polygon", "MultiPolygon"), "wayveil tiling build", TilingFileError)


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
    head = {
        "region": region_head(tiling.plane.region),
        "cell_m": int(tiling.cell_m),
        "off_road": float(tiling.off_road),
        "digest": tiling.digest,
        **asdict(origin),
    }
    write_artefact(path, KIND, head, _columns(tiling, wkb_on_ground(tiling.lattice, tiling.box)))


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
    return read_artefact(path, KIND, _read)


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


def _read(head: dict[str, Any], table: Any) -> tuple[tuple[Tiling, Origin], str]:
    tiling, origin = _tiling(head, table), Origin(*(head[name] for name in Origin.__dataclass_fields__))
    return (tiling, origin), tiling.digest


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
