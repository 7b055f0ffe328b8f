"""Reading the files that several programs read."""

import gzip
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from jobs.errors import UserError

__all__ = ["OSM_LICENCE", "OSM_SOURCE", "UNKNOWN_LICENCE", "origin_of", "osm_elements", "read_json"]

OSM_SOURCE, OSM_LICENCE = "OpenStreetMap contributors", "ODbL 1.0"
UNKNOWN_LICENCE = "licence not stated"


def read_json(path: Path) -> Any:
    """Read a JSON document; one whose name ends in `.gz` is unpacked.

    Raises
    ------
    UserError
        If it cannot be read, or is not JSON.
    """
    try:
        content = path.read_bytes()
        return orjson.loads(gzip.decompress(content) if path.name.endswith(".gz") else content)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"`{path}` cannot be read: {getattr(error, 'strerror', None) or 'it is damaged'}.") from error
    except orjson.JSONDecodeError as error:
        raise UserError(f"`{path.name}` is not JSON: {error} (NaN and Infinity are no JSON).") from error


def origin_of(document: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Return whose a GeoJSON document is, and under which terms, as it says itself; else its file's name."""
    licence = next((document[key] for key in ("licence", "license") if isinstance(document.get(key), str)), None)
    source = document.get("attribution") if isinstance(document.get("attribution"), str) else None
    return source or name, licence or ("see source" if source else UNKNOWN_LICENCE)


def osm_elements(path: Path, *keys: str) -> Iterator[Any]:
    """Yield the elements of an OpenStreetMap extract that have one of some keys, with the places of their nodes.

    An element is gone when the next one comes.

    Raises
    ------
    UserError
        If the file cannot be read, or the package for it is missing.
    """
    try:
        import osmium
    except ImportError as error:
        raise UserError("Reading .pbf files needs the package osmium: install wayveil with the extra `tiling`.") from error
    try:
        yield from osmium.FileProcessor(str(path)).with_locations().with_filter(osmium.filter.KeyFilter(*keys))
    except RuntimeError as error:
        raise UserError(f"`{path}` cannot be read as an OpenStreetMap extract: {error}.") from error
