"""The product in the density bench: a tree of tiles packed from public road cells, through the same modules as the job."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from geo.privacy.budgets import epsilon_micro, level_budgets, node_budgets
from geo.privacy.consistency import estimate
from geo.privacy.tree_counts import Neighbours, TreeCounts
from geo.tiling.locate import Locator
from geo.tiling.pack import pack, shape_for
from geo.tiling.smoothing import Smoothing
from geo.tiling.workload import range_workload
from jobs.bench.density.contenders import spread
from jobs.bench.density.places import Place

__all__ = ["COUNTS", "OURS", "SMOOTHED", "UNBIASED", "RoadTree"]

OURS = "wayveil"
UNBIASED, COUNTS, SMOOTHED = "unbiased", "counts", "counts, smoothed"
"""Forms: least squares alone; published whole counts, spread over the roads of each tile; and the same with the spread smoothed."""

SECRET = b"no secret: the bench's users are nobody's"
NEIGHBOURS: Neighbours = "add-remove"

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class RoadTree:
    """The density product on the roads of a place.

    Parameters
    ----------
    place : Place
    users : int
        The public number of expected users.
    epsilon : float
        Budget of a snapshot.
    """

    def __init__(self, place: Place, users: int, epsilon: float) -> None:
        self.road = place.road
        cells = np.argwhere(place.road > 0)
        nx, ny = place.road.shape
        packing = pack(cells, place.road[place.road > 0], (nx, ny), shape_for(users, epsilon, NEIGHBOURS))
        self.tree = packing.tree
        x, y = np.mgrid[1 : nx + 1, 1 : ny + 1]
        # A locator's boxes are closed above: cell (x, y) ends at (x + 1, y + 1).
        self.leaf = Locator.of(packing.box[self.tree.leaves], nx, ny).find(x.ravel(), y.ravel()).reshape(nx, ny)
        self.smoothing = Smoothing(cells, place.road[place.road > 0], self.leaf[place.road > 0], len(self.tree.leaves))
        budgets = level_budgets(self.tree, epsilon_micro(epsilon), workload=range_workload(self.tree, packing.box, (nx, ny)))
        self.mechanism = TreeCounts(self.tree, node_budgets(self.tree, budgets), NEIGHBOURS)

    def release(self, counts: Integers, seed: int, run: int) -> Iterator[tuple[str, Floats]]:
        """Yield form and density of a snapshot's release.

        Parameters
        ----------
        counts : ndarray of int64 with shape (nx, ny)
            True counts.
        seed, run : int
            Another pair gives other noise.
        """
        leaf_counts = np.bincount(self.leaf.ravel(), counts.ravel(), minlength=len(self.tree.leaves)).astype(np.int64)
        noisy = self.mechanism.release(SECRET, run, leaf_counts, seed.to_bytes(8, "little"))
        published = estimate(self.tree, noisy, self.mechanism.variance)
        count = published.count[self.tree.leaves].astype(np.float64)
        yield UNBIASED, spread(self.leaf, published.unbiased[self.tree.leaves], self.road)
        yield COUNTS, spread(self.leaf, count, self.road)
        weight = np.zeros_like(self.road)
        weight[self.road > 0] = self.smoothing.weights(count)
        yield SMOOTHED, spread(self.leaf, count, weight)
