"""Anchors as one file: GeoParquet that maps open, with a version and checksums that jobs insist on.

A row is an anchor, in the order of ids. Columns: `id`, `lat` and `lon` (degrees), `categories` (names, the main one first), `popularity`
and `geometry` (a point). File metadata `geo` is GeoParquet's; `wayveil.anchors` holds the region, the names of all categories, where the
anchors come from, and the digests. The geometry is for maps alone: jobs use `lat` and `lon`.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import shapely

from geo.anchors.index import AnchorIndex
from geo.plane import Plane, Region
from streaming.geoparquet import Kind, read_artefact, region_head, write_artefact

__all__ = ["FORMAT_VERSION", "AnchorFileError", "AnchorOrigin", "load_anchors", "save_anchors"]

FORMAT_VERSION = 1


class AnchorFileError(ValueError):
    """The file holds no usable anchors; one sentence tells why."""


KIND = Kind("anchors", "anchors", b"wayveil.anchors", FORMAT_VERSION, ("Point",), "wayveil anchors build", AnchorFileError)


@dataclass(frozen=True)
class AnchorOrigin:
    """Where anchors come from; all of it public.

    Parameters
    ----------
    source : str
        What the places are, with their owner.
    licence : str
        Under which terms they are used.
    """

    source: str
    licence: str


def save_anchors(path: Path, anchors: AnchorIndex, origin: AnchorOrigin) -> None:
    """Write anchors; the file appears whole or not at all.

    Parameters
    ----------
    path : Path
        File to write or replace, `.parquet` by custom.
    anchors : AnchorIndex
    origin : AnchorOrigin
    """
    head = {
        "region": region_head(anchors.plane.region),
        "category_names": list(anchors.category_names),
        "digest": anchors.digest,
        **asdict(origin),
    }
    columns = {
        "id": pa.array(anchors.ids, pa.string()),
        "lat": pa.array(anchors.lat, pa.float64()),
        "lon": pa.array(anchors.lon, pa.float64()),
        "categories": pa.array([[anchors.category_names[code] for code in row if code >= 0] for row in anchors.codes]),
        "popularity": pa.array(anchors.popularity, pa.float64()),
        "geometry": pa.array(shapely.to_wkb(shapely.points(anchors.lon, anchors.lat), flavor="iso", byte_order=1), pa.binary()),
    }
    write_artefact(path, KIND, head, columns)


def load_anchors(path: Path) -> tuple[AnchorIndex, AnchorOrigin]:
    """Read anchors back.

    Parameters
    ----------
    path : Path
        File that `save_anchors` wrote.

    Returns
    -------
    anchors : AnchorIndex
        Checked as a newly made one is, and against the digest in the file.
    origin : AnchorOrigin

    Raises
    ------
    AnchorFileError
        If the file cannot be read, holds no anchors, has another format version, or differs from its checksums.
    """
    return read_artefact(path, KIND, _read)


def _read(head: dict[str, Any], table: Any) -> tuple[tuple[AnchorIndex, AnchorOrigin], str]:
    if any(table[name].null_count for name in table.column_names):
        raise ValueError("a value is missing")
    names = head["category_names"]
    code = {name: at for at, name in enumerate(names)}
    lat, lon, popularity = (np.asarray(table[name].to_numpy(), np.float64) for name in ("lat", "lon", "popularity"))
    categories = [[code[name] for name in row] for row in table["categories"].to_pylist()]
    anchors = AnchorIndex(Plane(Region(**head["region"])), names, table["id"].to_pylist(), lat, lon, categories, popularity)
    return (anchors, AnchorOrigin(head["source"], head["licence"])), anchors.digest
