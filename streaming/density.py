"""One record of the topic `density`: how the job writes it, and what a consumer can ask of it.

A consumer needs the tiling's file and the record, and nothing else::

    tiling, _ = load_tiling(Path("helsinki.tiling.parquet"))
    density = Density.load(value, tiling)
    density.range_count(shapely.box(24.93, 60.16, 24.96, 60.18))
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import orjson
from numpy.typing import NDArray

from geo.privacy.budgets import node_budgets
from geo.privacy.consistency import Estimate, variance_of_sum
from geo.privacy.tree_counts import Neighbours, Noise, TreeCounts
from geo.tiling.ranges import Ranges
from geo.tiling.tiling import Tiling
from geo.tree import Tree
from streaming.release import SCHEMA_VERSION

__all__ = ["Charge", "Density", "DensityError", "RangeCount", "Standing", "density_line"]

Unit = Literal["micro-epsilon", "nano-rho"]
UNITS: dict[Noise, Unit] = {"discrete-laplace": "micro-epsilon", "discrete-gaussian": "nano-rho"}
_NOISES: dict[str, Noise] = {unit: noise for noise, unit in UNITS.items()}


class DensityError(ValueError):
    """A record cannot be used; the message says why."""


@dataclass(frozen=True)
class Charge:
    """What a tick cost, and what any `window_ticks` consecutive ticks may cost together, in units: 1e-6 of ε, or 1e-9 of ρ (zCDP)."""

    unit: Unit
    test: int
    publish: int
    limit: int
    window_ticks: int


@dataclass(frozen=True, eq=False)
class Standing:
    """A published tree, for as long as it stands.

    Attributes
    ----------
    tick
        In which it was counted.
    levels
        Units of each level of the tree, root first.
    estimate
        Counts of all nodes, in the tree's order.
    """

    tick: int
    levels: NDArray[np.int64]
    estimate: Estimate


def density_line(
    tick: int,
    start_ms: int,
    tree: str,
    neighbours: Neighbours,
    schedule: str,
    action: str,
    smoothed: bool,
    look: str,
    charge: Charge,
    standing: Standing | None,
) -> str:
    """Encode a tick. All nodes are in it, zeros too, in the tree's order; without a standing tree their columns are null."""
    document: dict[str, Any] = {
        "v": SCHEMA_VERSION,
        "tick": tick,
        "start_ms": start_ms,
        "tree": tree,
        "neighbours": neighbours,
        "schedule": schedule,
        "action": action,
        "smoothed": smoothed,
        "look": look,
        "charge": charge.__dict__,
        **dict.fromkeys(("stands", "level_units", "count", "unbiased", "standard_error")),
    }
    if standing is not None:
        document["stands"], document["level_units"] = standing.tick, standing.levels.tolist()
        document["count"] = standing.estimate.count.tolist()
        document["unbiased"] = np.round(standing.estimate.unbiased, 1).tolist()
        document["standard_error"] = _short(standing.estimate.standard_error)
    return f"{tree}\t" + orjson.dumps(document).decode()


@dataclass(frozen=True)
class RangeCount:
    """Users in a range.

    Attributes
    ----------
    count
        Best estimate, at least 0.
    low, high
        The noise lets the true count of the covered shares of tiles lie between these with the wanted probability. Where the range cuts
        tiles, how users lie inside a tile is an assumption (evenly along its roads), whose error is not in it. Where counts are filtered
        over ticks, the interval is that of one tick's noise: too wide while counts stand still, and without the filter's lag while they
        move.
    standard_error
        Of an unbiased estimate from this tick alone, from the noise alone.
    """

    count: float
    low: float
    high: float
    standard_error: float


@dataclass(frozen=True, eq=False)
class Density:
    """A record of the topic `density`, with the tiling that it was counted on.

    Attributes
    ----------
    tiling
        Public tree.
    tick, start_ms
        Number of the tick and its first millisecond.
    stands
        Tick in which the counts were made; None if nothing has been published yet, and then the counts are empty.
    neighbours, schedule, action, charge
        What is protected, how budget is spent, what was done at this tick and what it cost.
    smoothed
        Whether the counts were filtered over ticks.
    levels
        Units of each level of the tree that stands.
    count, unbiased, standard_error
        Of each node in the tree's order, shape (n,): whole, non-negative counts that add up; unbiased estimates; their errors.
    """

    tiling: Tiling
    tick: int
    start_ms: int
    stands: int | None
    neighbours: Neighbours
    schedule: str
    action: str
    smoothed: bool
    charge: Charge
    levels: NDArray[np.int64]
    count: NDArray[np.int64]
    unbiased: NDArray[np.float64]
    standard_error: NDArray[np.float64]

    @classmethod
    def load(cls, value: bytes, tiling: Tiling) -> "Density":
        """Read a record.

        Raises
        ------
        DensityError
            If it is no record of density, not of this version, or was counted on another tiling.
        """
        try:
            document = orjson.loads(value)
            return cls._of(document, tiling)
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise DensityError("this is no record of density: read the topic that topics.density names") from error

    @classmethod
    def _of(cls, document: dict[str, Any], tiling: Tiling) -> "Density":
        if document["v"] != SCHEMA_VERSION:
            raise DensityError(f"the record has version {document['v']} and this release reads {SCHEMA_VERSION}: use the one that wrote it")
        if document["tree"] != tiling.version:
            raise DensityError(f"the record was counted on tiling {document['tree']}, not {tiling.version}: load that tiling's file")

        def column(name: str, kind: type) -> NDArray[Any]:
            return np.array(document[name] or (), kind)

        return cls(
            tiling,
            document["tick"],
            document["start_ms"],
            document["stands"],
            document["neighbours"],
            document["schedule"],
            document["action"],
            document["smoothed"],
            Charge(**document["charge"]),
            column("level_units", np.int64),
            column("count", np.int64),
            column("unbiased", np.float64),
            column("standard_error", np.float64),
        )

    def range_count(self, polygon: Any, confidence: float = 0.95) -> RangeCount:
        """Count the users in a polygon.

        Tiles inside it count whole, tiles that it cuts by the share of their road that is inside, more of it where neighbouring tiles are
        fuller. Users outside the region have no place and are never counted, so a polygon that misses the region is refused. Post-
        processing of a published record: it costs nothing.

        Parameters
        ----------
        polygon
            shapely Polygon or MultiPolygon, x = longitude and y = latitude in degrees.
        confidence
            Probability of the interval, more than 0 and less than 1. The interval is that of a Laplace variable with the estimate's
            variance, which is wider than that of any sum of them.

        Raises
        ------
        DensityError
            If nothing has been published yet, or the polygon misses the region.
        ValueError
            If the polygon is empty, crosses itself or has coordinates that are not finite, or `confidence` is outside its range.
        """
        if not 0 < confidence < 1:
            raise ValueError("`confidence` should be more than 0 and less than 1.")
        if self.stands is None:
            raise DensityError("nothing has been published up to this tick: read a later record")
        ranges, tree = _ranges(self.tiling), self.tiling.tree
        leaf, share = ranges.coverage_of_degrees(polygon)
        if not len(leaf):
            raise DensityError("nobody is counted there, since the range misses the tiling's region: give longitude first, then latitude")
        nodes = tree.leaves[leaf]
        weights = np.zeros(len(tree))
        weights[nodes] = share
        # Also where counts are filtered over ticks: how far the filter lags behind is not known, a tick's own noise is.
        variance = _noise_variance(self.tiling, tuple(self.levels.tolist()), self.neighbours, _NOISES[self.charge.unit])
        error = math.sqrt(variance_of_sum(tree, variance, weights))
        unbiased = float(share @ self.unbiased[nodes])
        reach = -math.log1p(-confidence) / math.sqrt(2) * error
        # The best guess of where users are inside a tile rises towards fuller neighbours; the interval is that of fixed shares, made wide
        # enough to hold the guess.
        count = self.count[tree.leaves]
        leaf, share = ranges.coverage_of_degrees(polygon, count)
        guess = float(share @ count[leaf])
        return RangeCount(guess, max(0.0, min(unbiased - reach, guess)), max(unbiased + reach, guess), error)


def _short(errors: NDArray[np.float64]) -> Sequence[float]:
    """Round to three significant digits."""
    size = np.floor(np.log10(np.maximum(errors, 1e-12)))
    scale = 10.0 ** (2 - size)
    return [float(f"{value:.3g}") for value in (np.round(errors * scale) / scale).tolist()]


@lru_cache(maxsize=8)
def _ranges(tiling: Tiling) -> Ranges:
    return Ranges(tiling)


@lru_cache(maxsize=32)
def _noise_variance(tiling: Tiling, levels: tuple[int, ...], neighbours: Neighbours, noise: Noise) -> NDArray[np.float64]:
    tree: Tree = tiling.tree
    return TreeCounts(tree, node_budgets(tree, np.array(levels, np.int64)), neighbours, noise).variance
