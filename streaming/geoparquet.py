"""Artefacts as one GeoParquet file: it maps open, and carries a version and a checksum that jobs insist on."""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from geo.plane import Region

__all__ = ["Kind", "read_artefact", "region_head", "write_artefact"]

GEOPARQUET_VERSION = "1.1.0"

Artefact = TypeVar("Artefact")


@dataclass(frozen=True)
class Kind:
    """What sort of artefact a file holds.

    Parameters
    ----------
    name : str
        As messages call it: "tiling".
    one : str
        The same with its article, if it has one: "a tiling".
    key : bytes
        Under which the file's metadata hold the head of the artefact.
    format_version : int
        Of the file; another one is refused.
    geometry_types : tuple of str
        Of the column `geometry`, in GeoParquet's words.
    command : str
        That builds such a file.
    error : type of ValueError
        Raised for all that is wrong with a file.
    """

    name: str
    one: str
    key: bytes
    format_version: int
    geometry_types: tuple[str, ...]
    command: str
    error: type[ValueError]


def region_head(region: Region) -> dict[str, Any]:
    """Return a region as the head of an artefact holds it: the arguments of `Region`."""
    return {"name": region.name, **dict(zip(("south", "west", "north", "east"), region.bounds, strict=True))}


def write_artefact(path: Path, kind: Kind, head: dict[str, Any], columns: dict[str, Any]) -> None:
    """Write an artefact; the file appears whole or not at all.

    Parameters
    ----------
    path : Path
        File to write or replace, `.parquet` by custom.
    kind : Kind
    head : dict
        What the columns do not hold, JSON values; with the digest of the artefact under "digest".
    columns : dict of str to arrays
        With "geometry": WKB or null.
    """
    head = {"format_version": kind.format_version, **head}
    head["checksum"] = _checksum(head, pa.array(columns["geometry"]).to_pylist())
    column = {"encoding": "WKB", "geometry_types": list(kind.geometry_types)}
    if "Polygon" in kind.geometry_types:
        column |= {"orientation": "counterclockwise", "edges": "planar"}
    # Without `crs`, coordinates are longitude and latitude in OGC:CRS84 (GeoParquet 1.1.0).
    geo = {"version": GEOPARQUET_VERSION, "primary_column": "geometry", "columns": {"geometry": column}}
    metadata = {b"geo": json.dumps(geo).encode(), kind.key: json.dumps(head, ensure_ascii=False).encode()}
    table = pa.table(columns).replace_schema_metadata(metadata)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        pq.write_table(table, part, compression="zstd", write_page_checksum=True)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_artefact(path: Path, kind: Kind, build: Callable[[dict[str, Any], Any], tuple[Artefact, str]]) -> Artefact:
    """Read an artefact back.

    Parameters
    ----------
    path : Path
        File that `write_artefact` wrote.
    kind : Kind
    build : callable
        Makes the artefact of the head and the table, checks it as a newly made one is, and returns it with its digest.

    Raises
    ------
    kind.error
        If the file cannot be read, is none of this kind, has another format version, or differs from its checksums.
    """
    hint = f"build {kind.one} with `{kind.command}`"
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            head = json.loads((file.schema_arrow.metadata or {}).get(kind.key, b"null"))
            if not isinstance(head, dict):
                raise kind.error(f"`{path}` is a Parquet file, but no {kind.name}: {hint}.")
            if head.get("format_version") != kind.format_version:
                raise kind.error(
                    f"`{path}` has another format version than {kind.format_version}: build the {kind.name} again with this program."
                )
            table = file.read()
        artefact, digest = build(head, table)
        expected = _checksum({name: value for name, value in head.items() if name != "checksum"}, table["geometry"].to_pylist())
        if head["digest"] != digest or head["checksum"] != expected:
            raise kind.error(f"`{path}` differs from its checksum: it was changed or damaged after it was built.")
    except kind.error:
        raise
    except FileNotFoundError:
        raise kind.error(f"`{path}` does not exist: {hint}.") from None
    except pa.ArrowInvalid:
        raise kind.error(f"`{path}` is no Parquet file: {hint}.") from None
    except (OSError, pa.ArrowException, ValueError, TypeError, KeyError, AttributeError) as error:
        raise kind.error(f"`{path}` cannot be read as {kind.one}: it was changed or damaged ({type(error).__name__}).") from error
    return artefact


def _checksum(head: dict[str, Any], geometry: list[bytes | None]) -> str:
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for shape in geometry:
        digest.update(len(shape or b"").to_bytes(8, "little") + (shape or b""))
    return digest.hexdigest()
