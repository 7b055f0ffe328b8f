"""The lattice under a tiling: square cells of a whole number of metres over the image of a region."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geo.plane import Plane, Region

__all__ = ["MAX_CELL_M", "Lattice", "same_region"]

MAX_CELL_M = 100_000
_E7 = 10_000_000
_TURN_E7 = 360 * _E7
_MM = 1000


@dataclass(frozen=True)
class Lattice:
    """Square cells (x, y), 0 <= x < nx, 0 <= y < ny, that cover the bounds of a plane.

    Parameters
    ----------
    plane : Plane
        Cell (0, 0) has its lower left corner at the first two of its `bounds_mm`.
    cell_m : int
        Side of a cell in metres, 1 to `MAX_CELL_M`.

    Raises
    ------
    ValueError
        If `cell_m` is outside its range.
    """

    plane: Plane
    cell_m: int

    def __post_init__(self) -> None:
        """Check the side."""
        if not 1 <= self.cell_m <= MAX_CELL_M:
            raise ValueError(f"`cell_m` should be a whole number of metres from 1 to {MAX_CELL_M}.")

    @property
    def cell_mm(self) -> int:
        """Side of a cell in millimetres."""
        return self.cell_m * _MM

    @property
    def origin_mm(self) -> NDArray[np.int64]:
        """x, y of the lower left corner, shape (2,)."""
        return self.plane.bounds_mm[:2]

    @property
    def shape(self) -> tuple[int, int]:
        """nx, ny."""
        nx, ny = -(-(self.plane.bounds_mm[2:] - self.origin_mm) // self.cell_mm)
        return int(nx), int(ny)

    def contains_degrees(self, lat_e7: NDArray[np.integer[Any]], lon_e7: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        """Tell which positions lie in the region, its boundary included; `Plane.to_mm` clips, and so hides, the others.

        Parameters
        ----------
        lat_e7, lon_e7 : ndarray of int with shape (n,)
            1e-7 degrees; longitudes are taken modulo 360 degrees.

        Returns
        -------
        ndarray of bool with shape (n,)
        """
        region = self.plane.region
        lat = np.asarray(lat_e7).astype(np.int64)
        east = np.remainder(np.asarray(lon_e7).astype(np.int64) - round(region.west * _E7), _TURN_E7)
        within = (lat >= round(region.south * _E7)) & (lat <= round(region.north * _E7))
        return np.asarray(within & (east <= round(region.width * _E7)))

    def corners_m(self, box: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the corners of boxes on the plane.

        Parameters
        ----------
        box : ndarray of int64 with shape (n, 4)
            x0, y0, x1, y1 in cells.

        Returns
        -------
        ndarray of float64 with shape (n, 4)
            x0, y0, x1, y1 in metres.
        """
        return (np.asarray(box, np.int64) * self.cell_mm + np.tile(self.origin_mm, 2)) / _MM


def same_region(one: Region, other: Region) -> bool:
    """Tell whether two regions cover the same ground, and so have the same plane and lattices; names are of no account."""
    return (one.south, one.west, one.north, one.east) == (other.south, other.west, other.north, other.east)
