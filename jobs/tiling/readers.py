"""Roads and places from files: OpenStreetMap extracts (.osm.pbf), Overpass answers and GeoJSON."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import shapely

from geo.tiling.shapes import check_polygon
from jobs.errors import UserError
from jobs.files import OSM_LICENCE, OSM_SOURCE, origin_of, osm_elements, read_json
from jobs.tiling.places import Places

__all__ = ["ROADS", "read_places"]

ROADS = frozenset(
    {
        *("motorway", "trunk", "primary", "secondary", "tertiary"),
        *("motorway_link", "trunk_link", "primary_link", "secondary_link", "tertiary_link"),
        *("unclassified", "residential", "living_street", "service", "road", "busway", "bus_guideway", "pedestrian", "track"),
    }
)
"""Values of OpenStreetMap's `highway` that count as roads: where vehicles, or streets full of people, may be. Foot and cycle paths beside
roads are left out, since they would weigh the same street twice."""

LIMITS = (180.0, 90.0)
GEOMETRIES = ("Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon", "GeometryCollection")


class _NotUsableError(ValueError):
    """What is wrong with one feature, as the end of a sentence."""


def read_places(path: Path) -> Places:
    """Read the roads or places of one file.

    Parameters
    ----------
    path : Path
        ``.pbf`` (OpenStreetMap; needs the extra `tiling`), or ``.json`` or ``.geojson``, also with ``.gz``: GeoJSON, or an Overpass
        answer in JSON whose ways carry their nodes or their geometry.

    Raises
    ------
    UserError
        If the file cannot be read, is of another kind or cut short, or a feature has a position that is no number or out of range, or an
        area that is none.
    """
    if path.name.endswith(".pbf"):
        return _read_pbf(path)
    if not path.name.endswith((".json", ".geojson", ".json.gz", ".geojson.gz")):
        raise UserError(f"`{path.name}` should end in .pbf, .json or .geojson (the latter two also with .gz).")
    document = read_json(path)
    if isinstance(document, dict) and isinstance(document.get("elements"), list):
        return _read_overpass(path.name, document)
    if isinstance(document, dict) and document.get("type") in ("FeatureCollection", "Feature", *GEOMETRIES):
        return _read_geojson(path.name, document)
    raise UserError(f"`{path.name}` is neither an Overpass answer (`elements`) nor GeoJSON (`type`).")


def _read_pbf(path: Path) -> Places:
    places = Places(path.name, OSM_SOURCE, OSM_LICENCE)
    for element in osm_elements(path, "highway"):
        if element.is_way() and element.tags["highway"] in ROADS:
            _add_way(places, [(node.lon, node.lat) if node.location.valid() else None for node in element.nodes])
    return places


def _read_overpass(name: str, document: dict[str, Any]) -> Places:
    if document.get("remark"):
        raise UserError(f"`{name}` is incomplete: Overpass remarked {str(document['remark'])!r}.")
    places = Places(name, OSM_SOURCE, OSM_LICENCE)
    elements = [element for element in document["elements"] if isinstance(element, dict)]
    nodes: dict[Any, tuple[float, float]] = {}
    for element in elements:
        if element.get("type") == "node":
            with _naming(name, f"node {element.get('id')}"):
                nodes[element.get("id")] = _position([element.get("lon"), element.get("lat")])
    for element in elements:
        if element.get("type") == "way" and (element.get("tags") or {}).get("highway") in ROADS:
            line: list[tuple[float, float] | None]
            if element.get("geometry"):
                with _naming(name, f"way {element.get('id')}"):
                    line = [_position([at.get("lon"), at.get("lat")]) if at else None for at in element["geometry"]]
            else:
                line = [nodes.get(node) for node in element.get("nodes") or ()]
            _add_way(places, line)
    return places


def _add_way(places: Places, line: list[tuple[float, float] | None]) -> None:
    """Add a road; a node that the extract lacks interrupts it."""
    owner, placed, run = places.features, False, list[tuple[float, float]]()
    for position in [*line, None]:
        if position is not None:
            run.append(position)
            continue
        if len(run) > 1:
            places.add_line(owner, run)
            placed = True
        run = []
    places.features += 1
    places.unplaced += not placed
    places.incomplete += placed and None in line


def _read_geojson(name: str, document: dict[str, Any]) -> Places:
    places = Places(name, *origin_of(document, name))
    features = document.get("features") if document["type"] == "FeatureCollection" else [document]
    if not isinstance(features, list):
        raise UserError(f"`{name}` should have a list of features.")
    for owner, feature in enumerate(features):
        with _naming(name, f"feature {owner + 1}"):
            if not isinstance(feature, dict):
                raise _NotUsableError("is no object")
            geometry = feature.get("geometry") if feature.get("type") == "Feature" else feature
            places.features += 1
            places.unplaced += not _add_geometry(places, owner, geometry)
    return places


def _add_geometry(places: Places, owner: int, geometry: Any) -> bool:
    """Add a GeoJSON geometry; tell whether it has any position."""
    if geometry is None:
        return False
    kind = geometry.get("type") if isinstance(geometry, dict) else None
    if kind not in GEOMETRIES:
        raise _NotUsableError(f"has a geometry of type {kind!r}, which is not in GeoJSON")
    if kind == "GeometryCollection":
        return any([_add_geometry(places, owner, part) for part in _list(geometry.get("geometries"))])
    parts = _list(geometry.get("coordinates"))
    if not parts:
        return False
    for part in parts if kind.startswith("Multi") else [parts]:
        if kind.endswith("Point"):
            places.add_point(owner, _position(part))
        elif kind.endswith("LineString"):
            line = [_position(position) for position in _list(part)]
            if len(line) < 2:  # noqa: PLR2004
                raise _NotUsableError("has a line of fewer than two positions")
            places.add_line(owner, line)
        else:
            places.areas.append((owner, _area([[_position(position) for position in _list(ring)] for ring in _list(part)])))
    return True


def _area(rings: list[list[tuple[float, float]]]) -> Any:
    try:
        polygon = shapely.Polygon(rings[0], rings[1:])
        check_polygon(polygon)
    except (ValueError, IndexError) as error:
        raise _NotUsableError(f"is no usable area: {str(error).rstrip('.') or 'it has no ring'}") from error
    return polygon


@contextmanager
def _naming(name: str, what: str) -> Iterator[None]:
    """Turn what is wrong with one feature into a sentence that names it."""
    try:
        yield
    except _NotUsableError as error:
        raise UserError(f"In `{name}`, {what} {error}.") from error


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _NotUsableError("has coordinates that are no list")
    return value


def _position(value: Any) -> tuple[float, float]:
    """Check longitude and latitude; text, truth values and null are no numbers."""
    if not (isinstance(value, list) and len(value) > 1 and all(type(part) in (int, float) for part in value[:2])):
        raise _NotUsableError("has a position that is not two numbers")
    if not all(math.isfinite(part) and abs(part) <= limit for part, limit in zip(value, LIMITS, strict=False)):
        raise _NotUsableError("has a position out of range: longitude comes first, -180 to 180, then latitude, -90 to 90")
    return float(value[0]), float(value[1])
