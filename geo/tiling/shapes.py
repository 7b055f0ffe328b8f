"""Polygons between the ground and the plane: queries come in degrees, tiles are drawn in degrees."""

from functools import partial
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.affinity import translate

from geo.plane import Plane
from geo.tiling.lattice import Lattice

__all__ = ["check_polygon", "on_ground", "on_plane", "overlap", "region_on_plane", "share_of_boxes", "wkb_on_ground"]

MAX_WIDTH_DEG = 180.0
EDGE_DEG = 0.02
"""Longest piece of an edge that is taken as straight both in degrees and on the plane: they differ by at most 0.2 m at 60 degrees."""
EDGE_M = 2000.0
"""Likewise from the plane to degrees."""
_TURN = 360.0
_POLE = 90.0


def check_polygon(polygon: Any) -> None:
    """Refuse what is no area.

    Parameters
    ----------
    polygon : shapely.Polygon or shapely.MultiPolygon

    Raises
    ------
    ValueError
        If it is no polygon, is empty, has a coordinate that is no number, or crosses or touches itself.
    """
    kind = getattr(polygon, "geom_type", type(polygon).__name__)
    if kind not in ("Polygon", "MultiPolygon"):
        raise ValueError(f"`polygon` should be a Polygon or a MultiPolygon, not a {kind}.")
    if polygon.is_empty:
        raise ValueError("`polygon` should not be empty.")
    if not np.isfinite(shapely.get_coordinates(polygon)).all():
        raise ValueError("`polygon` should have finite coordinates, not NaN or infinity.")
    if not polygon.is_valid:
        raise ValueError(f"`polygon` should be valid: {shapely.is_valid_reason(polygon).split('[')[0].lower()}.")


def on_plane(plane: Plane, polygon: Any) -> Any:
    """Bring a polygon from degrees to the plane, cut to the region.

    Parameters
    ----------
    plane : Plane
    polygon : shapely.Polygon or shapely.MultiPolygon
        x = longitude, y = latitude, in degrees; edges are straight in these (RFC 7946). What crosses the antimeridian is a MultiPolygon
        cut there, or has longitudes beyond 180.

    Returns
    -------
    shapely.MultiPolygon
        In metres of the plane, as `plane.to_mm` has them in millimetres; empty where it misses the region.

    Raises
    ------
    ValueError
        If `check_polygon` refuses it, a latitude is beyond 90 or a longitude beyond 360 degrees, or a part is wider than 180 degrees (as
        after crossing the antimeridian without a cut).
    """
    check_polygon(polygon)
    region = plane.region
    middle = region.west + region.width / 2
    window = shapely.box(middle - region.width / 2, region.south, middle + region.width / 2, region.north)
    parts: list[Any] = []
    for part in shapely.get_parts(polygon):
        west, south, east, north = part.bounds
        if south < -_POLE or north > _POLE or west < -_TURN or east > _TURN:
            raise ValueError("`polygon` should have latitudes from -90 to 90 and longitudes from -360 to 360 degrees, longitude first.")
        if east - west > MAX_WIDTH_DEG:
            raise ValueError("`polygon` should be at most 180 degrees wide: cut it at a meridian, at the antimeridian if it crosses that.")
        # Regions can be wider than half a turn, and so meet a part both as it is and one turn further on.
        first = int(np.floor((window.bounds[0] - east) / _TURN))
        for turn in range(first, first + 3):
            parts += _areas(shapely.intersection(translate(part, _TURN * turn), window))
    projected = [shapely.transform(shapely.segmentize(part, EDGE_DEG), partial(_project, plane)) for part in parts]
    # Rounding to millimetres can make a sliver touch itself.
    whole = shapely.union_all([part if part.is_valid else shapely.make_valid(part) for part in projected])
    return shapely.MultiPolygon(_areas(whole))


def region_on_plane(plane: Plane) -> Any:
    """Return the image of the whole region, a shapely.MultiPolygon in metres of the plane."""
    region = plane.region
    west = region.west if region.west + region.width <= _TURN else region.west - _TURN
    lines = west + region.width * np.array([0.0, 0.5, 1.0])
    halves = [on_plane(plane, shapely.box(*side)) for side in zip(lines, [region.south] * 2, lines[1:], [region.north] * 2, strict=False)]
    return shapely.MultiPolygon(_areas(shapely.union_all(halves)))


def overlap(one: Any, other: Any) -> Any:
    """Return the area that two polygons share, a shapely.MultiPolygon; empty where they only touch."""
    return shapely.MultiPolygon(_areas(shapely.intersection(one, other)))


def share_of_boxes(polygon: Any, corners: NDArray[np.float64], near: Any = None) -> NDArray[np.float64]:
    """Return the share of each box's area that lies inside a polygon.

    Parameters
    ----------
    polygon : shapely.Polygon or shapely.MultiPolygon
        Valid.
    corners : ndarray of float64 with shape (n, 4)
        x0, y0, x1, y1.
    near : ndarray of shapely.Geometry with shape (n,), optional
        What of the polygon lies around each box, to save time where the polygon is long.

    Returns
    -------
    ndarray of float64 with shape (n,)
        From 0 to 1.
    """
    boxes = shapely.box(*corners.T)
    share: NDArray[np.float64] = shapely.contains(polygon, boxes).astype(np.float64)
    cut = np.flatnonzero(shapely.intersects(polygon, boxes) & (share == 0))
    shared = shapely.intersection(polygon if near is None else near[cut], boxes[cut])
    share[cut] = np.minimum(shapely.area(shared) / shapely.area(boxes[cut]), 1.0)
    return share


def on_ground(lattice: Lattice, box: NDArray[np.int64]) -> NDArray[np.object_]:
    """Bring lattice boxes to degrees.

    Parameters
    ----------
    lattice : Lattice
    box : ndarray of int64 with shape (n, 4)
        x0, y0, x1, y1 in cells.

    Returns
    -------
    ndarray of shapely.Polygon or shapely.MultiPolygon with shape (n,)
        x = longitude from -180 to 180, y = latitude; counterclockwise, cut at the antimeridian (RFC 7946, 3.1.9). Empty boxes give empty
        polygons. For drawing: sides are curves in degrees, followed in steps of at most 2 km.
    """
    corners = lattice.corners_m(box)
    rings = [_ring(corner) for corner in corners]
    lengths = [len(ring) for ring in rings]
    points = np.rint(np.concatenate(rings) * 1000.0).astype(np.int64) if rings else np.zeros((0, 2), np.int64)
    degrees = np.split(lattice.plane.to_degrees(points), np.cumsum(lengths)[:-1]) if rings else []
    empty = (corners[:, 0] == corners[:, 2]) | (corners[:, 1] == corners[:, 3])
    shapes = [shapely.Polygon() if nothing else _cut_at_antimeridian(ring) for nothing, ring in zip(empty, degrees, strict=True)]
    out = np.empty(len(shapes), object)
    out[:] = shapes
    return out


def wkb_on_ground(lattice: Lattice, box: NDArray[np.int64]) -> list[bytes | None]:
    """Return the polygons of `on_ground` as little-endian well-known binary; None for empty boxes."""
    return [None if shape.is_empty else bytes(shapely.to_wkb(shape, byte_order=1)) for shape in on_ground(lattice, box)]


def _areas(shape: Any) -> list[Any]:
    return [part for part in shapely.get_parts(shape) if part.geom_type == "Polygon" and part.area > 0]


def _project(plane: Plane, lon_lat: NDArray[np.float64]) -> NDArray[np.float64]:
    e7 = np.rint(lon_lat * 1e7).astype(np.int64)
    return plane.to_mm(e7[:, 1], e7[:, 0]) / 1000.0


def _ring(corner: NDArray[np.float64]) -> NDArray[np.float64]:
    x0, y0, x1, y1 = corner
    across, up = (max(2, int(np.ceil(length / EDGE_M)) + 1) for length in (x1 - x0, y1 - y0))
    x, y = np.linspace(x0, x1, across), np.linspace(y0, y1, up)
    sides = ((x, np.full(across, y0)), (np.full(up, x1), y), (x[::-1], np.full(across, y1)), (np.full(up, x0), y[::-1]))
    # The last point of each side is the first of the next one.
    return np.concatenate([np.stack(side, axis=1)[:-1] for side in sides])


def _cut_at_antimeridian(lat_lon: NDArray[np.float64]) -> Any:
    lat = np.append(lat_lon[:, 0], lat_lon[0, 0])
    lon = np.unwrap(np.append(lat_lon[:, 1], lat_lon[0, 1]), period=_TURN)
    around = lon[-1] - lon[0]
    if abs(around) < _TURN / 2 and lon.min() >= -_TURN / 2 and lon.max() <= _TURN / 2:
        # The ring is counterclockwise as it comes.
        plain = shapely.Polygon(np.stack([lon, lat], axis=1))
        if plain.is_valid:
            return plain
    if abs(around) > _TURN / 2:
        # The ring goes round a pole, so in degrees its area reaches up to the pole along all meridians.
        pole = np.copysign(_POLE, lat.mean())
        lat, lon = np.append(lat, [pole, pole]), np.append(lon, [lon[-1], lon[0]])
    whole = shapely.make_valid(shapely.Polygon(np.stack([lon, lat], axis=1)))
    parts: list[Any] = []
    for turn in range(int(np.floor((lon.min() + 180.0) / _TURN)), int(np.floor((lon.max() + 180.0) / _TURN)) + 1):
        inside = shapely.intersection(whole, shapely.box(_TURN * turn - 180.0, -_POLE, _TURN * turn + 180.0, _POLE))
        parts += [translate(part, -_TURN * turn) for part in _areas(inside)]
    # Round a pole, the first and the last part meet where the ring begins.
    parts = [shapely.orient_polygons(part) for part in _areas(shapely.union_all(parts))]
    return parts[0] if len(parts) == 1 else shapely.MultiPolygon(parts)
