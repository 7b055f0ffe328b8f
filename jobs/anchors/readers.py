"""Public places from files: GeoJSON, OpenStreetMap extracts (.osm.pbf) and CSV, each with an id, a position and its categories."""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import shapely
from shapely.geometry import shape

from geo.tiling.shapes import check_polygon
from jobs.anchors.categories import CATEGORIES, OSM_KEYS, coarse
from jobs.errors import UserError
from jobs.files import OSM_LICENCE, OSM_SOURCE, UNKNOWN_LICENCE, origin_of, osm_elements, read_json

__all__ = ["Columns", "PublicPlaces", "read_public_places"]

LAT_COLUMNS, LON_COLUMNS = ("lat", "latitude"), ("lon", "lng", "longitude")
AREAS = ("Polygon", "MultiPolygon")
RANGES = (("latitude", 90.0), ("longitude", 180.0))
JSON_ENDS = (".json", ".geojson", ".json.gz", ".geojson.gz")


@dataclass(frozen=True)
class Columns:
    """What to read of a place besides its position.

    Parameters
    ----------
    category_from : tuple of str
        Where categories come from: a key of OpenStreetMap (`amenity`), whose value is looked up in the public table; `kind=value`, two
        properties of which the first holds such a key and the second its value; or any other property, whose text is the category
        itself. Several values are separated by semicolons.
    id_from : str, optional
        Property or column that holds the id; by default a GeoJSON feature's id, or the column or property `id`.
    popularity_from : str, optional
        Property or column that holds the popularity; by default all places are equally popular.
    """

    category_from: tuple[str, ...] = OSM_KEYS
    id_from: str | None = None
    popularity_from: str | None = None


@dataclass
class PublicPlaces:
    """The places of one file that have a category, in columns.

    Attributes
    ----------
    name : str
        Of the file, for messages.
    source, licence : str
        Owner and terms.
    where : list of str
        What to call each place in messages: its line, feature or element.
    ids : list of str
        Different.
    lat, lon, popularity : list of float
    categories : list of tuple of str
        Different names, at least one a place.
    uncategorised, unplaced : int
        Places left out since they have no category, or no position.
    """

    name: str
    source: str
    licence: str
    where: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    lat: list[float] = field(default_factory=list)
    lon: list[float] = field(default_factory=list)
    popularity: list[float] = field(default_factory=list)
    categories: list[tuple[str, ...]] = field(default_factory=list)
    uncategorised: int = 0
    unplaced: int = 0
    _seen: dict[str, str] = field(default_factory=dict)

    def add(self, where: str, name: Any, lat: Any, lon: Any, properties: Mapping[str, Any], columns: Columns) -> None:
        """Add a place, or count it as one without a category.

        Raises
        ------
        UserError
            If the position or the popularity is no number or out of range, or the id is missing or was there before.
        """
        position = [self._number(where, what, value, limit) for (what, limit), value in zip(RANGES, (lat, lon), strict=True)]
        categories = categories_of(properties, columns.category_from)
        if not categories:
            self.uncategorised += 1
            return
        text = "" if name is None else str(name).strip()
        if not text:
            raise UserError(f"In `{self.name}`, {where} has no id: say with --id-from which property holds it.")
        if text in self._seen:
            raise UserError(f"In `{self.name}`, {where} has the id {text!r} that {self._seen[text]} has: ids should be different.")
        popularity = 1.0
        if columns.popularity_from:
            popularity = self._number(where, "popularity", properties.get(columns.popularity_from), math.inf)
            if popularity < 0:
                raise UserError(f"In `{self.name}`, {where} has a popularity below 0.")
        self._seen[text] = where
        self.where.append(where)
        self.ids.append(text)
        self.lat.append(position[0])
        self.lon.append(position[1])
        self.popularity.append(popularity)
        self.categories.append(categories)

    def _number(self, where: str, what: str, value: Any, limit: float) -> float:
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                value = None
        if type(value) not in (int, float) or math.isnan(value) or math.isinf(value):
            raise UserError(f"In `{self.name}`, {where} has a {what} that is no number.")
        if abs(value) > limit:
            hint = " (latitude and longitude may be swapped)" if what == "latitude" else ""
            raise UserError(f"In `{self.name}`, {where} has a {what} out of range, from -{limit:g} to {limit:g}{hint}.")
        return float(value)


def categories_of(properties: Mapping[str, Any], category_from: tuple[str, ...]) -> tuple[str, ...]:
    """Return the different categories of a place in the order in which they are found; see `Columns`."""
    found: dict[str, None] = {}
    for source in category_from:
        key, _, value_key = source.partition("=")
        osm = str(properties.get(key) or "").strip() if value_key else key
        text = properties.get(value_key or key)
        for value in str(text).split(";") if text is not None else ():
            name = value.strip().lower()
            if (
                name
                and name != "no"
                and (osm in OSM_KEYS or not value_key)
                and (category := coarse(osm, name) if osm in OSM_KEYS else name)
            ):
                found[category] = None
    return tuple(found)


def category_names(places: PublicPlaces, columns: Columns) -> tuple[str, ...]:
    """Return all categories that places read so can have: those found, and the whole public table where it is used."""
    table = CATEGORIES if any("=" in source or source in OSM_KEYS for source in columns.category_from) else ()
    return tuple(sorted({*table, *(name for own in places.categories for name in own)}))


def read_public_places(path: Path, columns: Columns) -> PublicPlaces:
    """Read the places of one file.

    Parameters
    ----------
    path : Path
        ``.pbf`` (OpenStreetMap, nodes and ways; needs the extra `tiling`), GeoJSON (``.json`` or ``.geojson``, also with ``.gz``; points,
        and areas by a point inside them), or ``.csv`` with a header and the columns `lat` and `lon`.
    columns : Columns

    Raises
    ------
    UserError
        If the file cannot be read or is of another kind, or a place is not usable; names its line, feature or element.
    """
    if path.name.endswith(".pbf"):
        return _read_pbf(path, columns)
    if path.name.endswith(".csv"):
        return _read_csv(path, columns)
    if path.name.endswith(JSON_ENDS):
        return _read_geojson(path, columns)
    raise UserError(f"`{path.name}` should end in .osm.pbf, .geojson, .json (the latter two also with .gz) or .csv.")


def _read_csv(path: Path, columns: Columns) -> PublicPlaces:
    places = PublicPlaces(path.name, path.name, UNKNOWN_LICENCE)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file, strict=True)
            header = rows.fieldnames or ()
            lat, lon = (next((name for name in names if name in header), None) for names in (LAT_COLUMNS, LON_COLUMNS))
            if lat is None or lon is None:
                raise UserError(f"`{path.name}` should have the columns lat and lon; its header has: {', '.join(header) or 'nothing'}.")
            id_from = columns.id_from or "id"
            wanted = [id_from, columns.popularity_from or id_from]
            if columns.category_from != OSM_KEYS:
                wanted += [part for source in columns.category_from for part in source.split("=")]
            if missing := [name for name in wanted if name not in header]:
                raise UserError(f"`{path.name}` has no column {missing[0]!r}; its header has: {', '.join(header)}.")
            for row in rows:
                where = f"line {rows.line_num}"
                if None in row or None in row.values():
                    raise UserError(f"In `{path.name}`, {where} has another number of columns than the header.")
                places.add(where, row[id_from], row[lat], row[lon], row, columns)
    except OSError as error:
        raise UserError(f"`{path}` cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"`{path.name}` is not UTF-8 text.") from error
    except csv.Error as error:
        raise UserError(f"`{path.name}` is no CSV in line {rows.reader.line_num}: {error}.") from error
    return places


def _read_geojson(path: Path, columns: Columns) -> PublicPlaces:
    document = read_json(path)
    if not (isinstance(document, dict) and document.get("type") == "FeatureCollection" and isinstance(document.get("features"), list)):
        raise UserError(f"`{path.name}` should be a GeoJSON FeatureCollection with a list of features.")
    places = PublicPlaces(path.name, *origin_of(document, path.name))
    for number, feature in enumerate(document["features"], start=1):
        where = f"feature {number}"
        if not isinstance(feature, dict):
            raise UserError(f"In `{path.name}`, {where} is no object.")
        properties = feature.get("properties") or {}
        if not isinstance(properties, dict):
            raise UserError(f"In `{path.name}`, {where} has properties that are no object.")
        if feature.get("geometry") is None:
            places.unplaced += 1
            continue
        lon, lat = _point_of(path.name, where, feature["geometry"])
        name = properties.get(columns.id_from) if columns.id_from else feature.get("id", properties.get("id"))
        places.add(where, name, lat, lon, properties, columns)
    return places


def _point_of(name: str, where: str, geometry: Any) -> tuple[Any, Any]:
    """Return longitude and latitude of a GeoJSON geometry: of a point, or of some point inside an area."""
    kind = geometry.get("type") if isinstance(geometry, dict) else None
    parts = geometry.get("coordinates") if kind else None
    if kind == "Point" and isinstance(parts, list) and len(parts) > 1:
        # Text is no number in GeoJSON.
        return tuple(None if isinstance(part, str) else part for part in parts[:2])  # type: ignore[return-value]
    if kind not in AREAS:
        raise UserError(f"In `{name}`, {where} should be a Point, Polygon or MultiPolygon with coordinates, not {kind!r}.")
    try:
        area = shape(geometry)
        check_polygon(area)
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, shapely.GEOSException) as error:
        raise UserError(f"In `{name}`, {where} is no usable area: {str(error).rstrip('.') or 'it has no ring'}.") from error
    point = shapely.point_on_surface(area)
    return point.x, point.y


def _read_pbf(path: Path, columns: Columns) -> PublicPlaces:
    places = PublicPlaces(path.name, OSM_SOURCE, OSM_LICENCE)
    for element in osm_elements(path, *(key for key in columns.category_from if "=" not in key)):
        if not (element.is_node() or element.is_way()):
            continue
        spots = [spot for spot in ([element] if element.is_node() else element.nodes) if spot.location.valid()]
        if not spots:
            places.unplaced += 1
            continue
        lon, lat = _inside([(spot.location.lon, spot.location.lat) for spot in spots])
        name = f"{'node' if element.is_node() else 'way'}/{element.id}"
        places.add(name, name, lat, lon, {tag.k: tag.v for tag in element.tags}, columns)
    return places


def _inside(line: list[tuple[float, float]]) -> tuple[float, float]:
    """Return a point of a node, inside a closed way, or on an open one."""
    ring = shapely.Polygon(line) if len(line) > 3 and line[0] == line[-1] else None  # noqa: PLR2004
    if ring is not None and ring.is_valid and ring.area > 0:
        point = shapely.point_on_surface(ring)
        return point.x, point.y
    return line[len(line) // 2]
