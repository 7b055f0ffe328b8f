"""First step of the density bench: places, each a public picture of the ground and a private crowd on one lattice."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from jobs.errors import UserError

__all__ = ["Place", "beijing", "synthetic"]

BEIJING = ("density/BeijingTaxiS_256_256.npy", "density/BeijingTaxiE_256_256.npy")
SYNTHETIC_SIDE = 64
SYNTHETIC_ROAD_EVERY = 4
SYNTHETIC_SPREAD = 9.0

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Place:
    """A lattice with what is public of it and where users are.

    Parameters
    ----------
    name
        What the tables call it.
    crowd : ndarray of float64 with shape (nx, ny)
        Weights that snapshots are drawn from, not negative.
    road : ndarray of float64 with shape (nx, ny)
        Public weight of each cell, above zero where a road is.
    """

    name: str
    crowd: Floats
    road: Floats

    def snapshot(self, users: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw the places of independent users.

        Parameters
        ----------
        users : int
            Number of users.
        rng : Generator

        Returns
        -------
        ndarray of int64 with shape (nx, ny)
            Users in each cell, in sum `users`.
        """
        return rng.multinomial(users, (self.crowd / self.crowd.sum()).ravel()).reshape(self.crowd.shape)


def beijing(data: Path) -> Place:
    """Return Beijing's taxis: trips' starts as the crowd, the cells with ends (as a mask, without their counts) as the road.

    Parameters
    ----------
    data : Path
        Folder of the samples.

    Raises
    ------
    UserError
        If a file is not there.
    """
    starts, ends = (np.load(require(data, name)) for name in BEIJING)
    return Place("Beijing", starts, (ends > 0).astype(np.float64))


def synthetic() -> Place:
    """Return a small town that needs no sample: a grid of roads, and a crowd that thins out from two centres along them."""
    x, y = np.mgrid[:SYNTHETIC_SIDE, :SYNTHETIC_SIDE]
    road = (x % SYNTHETIC_ROAD_EVERY == 0) | (y % SYNTHETIC_ROAD_EVERY == 0)
    road &= (x + y < 3 * SYNTHETIC_SIDE // 2) & (x > SYNTHETIC_SIDE // 8)
    crowd = np.zeros(road.shape)
    for (centre_x, centre_y), weight in (((24, 20), 1.0), ((40, 40), 0.5)):
        crowd += weight * np.exp(-np.hypot(x - centre_x, y - centre_y) / (SYNTHETIC_SPREAD / 2))
    return Place("synthetic", np.where(road, crowd, 0.0), road.astype(np.float64))


def require(data: Path, name: str) -> Path:
    """Return the path of a sample file.

    Raises
    ------
    UserError
        If it is not there.
    """
    path = data / name
    if not path.is_file():
        raise UserError(f"The sample file {path} is missing: pass the folder of the samples with --data.")
    return path
