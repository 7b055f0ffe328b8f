"""The runs of the density bench: the same snapshots and rectangles for every method, and one score for each size class."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from jobs.bench.density.contenders import CONTENDERS, spread
from jobs.bench.density.ours import OURS, RoadTree
from jobs.bench.density.places import Place
from jobs.bench.density.protocol import SIZE_CLASSES, Mean, SummedArea, draw_rectangles, mean_of, relative_errors

__all__ = ["OWN_FORMS", "ROAD_FORMS", "Score", "Setting", "measure"]

OWN_FORMS = ("unbiased", "non-negative")
"""Of each contender, spread evenly over each piece's area."""
ROAD_FORMS = ("unbiased, on roads", "non-negative, on roads")
"""The same, spread over the public roads in each piece as the product does: no contender's own, but it shows what the roads alone do."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """What one snapshot is like.

    Parameters
    ----------
    place
        Name of the place.
    users
        Users in a snapshot, and the public number that every method knows.
    epsilon
        Budget of a snapshot.
    """

    place: str
    users: int
    epsilon: float

    def __str__(self) -> str:
        """Return a title."""
        return f"{self.place}, {self.users:,} users, ε {self.epsilon:g}"


@dataclass(frozen=True)
class Score:
    """Mean relative error of a method's form over all runs.

    Parameters
    ----------
    setting
        Of the snapshots.
    method
        Name of the method.
    form
        Which form of its answer.
    errors
        For each size class.
    """

    setting: Setting
    method: str
    form: str
    errors: Mapping[str, Mean]


def measure(place: Place, users: int, epsilon: float, runs: int, rectangles: int, seed: int = 0) -> list[Score]:
    """Measure all methods on the same snapshots.

    Each run draws a snapshot, rectangles, and each method's noise anew.

    Parameters
    ----------
    place : Place
    users : int
        Users in a snapshot.
    epsilon : float
        Budget of a snapshot.
    runs : int
        Number of snapshots, at least 1.
    rectangles : int
        Number of rectangles of each size class in a run.
    seed : int, default 0
        Another one gives other runs.

    Returns
    -------
    list of Score
    """
    tree = RoadTree(place, users, epsilon)
    errors: dict[tuple[str, str], dict[str, list[float]]] = {}
    for run in range(runs):
        rng = np.random.default_rng([seed, users, run])
        counts = place.snapshot(users, rng)
        truth = SummedArea(counts)
        asked = {name: draw_rectangles(rng, counts.shape, parts, rectangles) for name, parts in SIZE_CLASSES.items()}
        answers = _contenders(place, counts, users, epsilon, [seed, users, run])
        for method, form, density in chain(answers, ((OURS, *released) for released in tree.release(counts, seed, run))):
            table = SummedArea(density)
            of = errors.setdefault((method, form), {name: [] for name in SIZE_CLASSES})
            for name, where in asked.items():
                of[name].append(float(relative_errors(table.over(where), truth.over(where), users).mean()))
    setting = Setting(place.name, users, epsilon)
    return [Score(setting, method, form, {name: mean_of(values) for name, values in of.items()}) for (method, form), of in errors.items()]


def _contenders(place: Place, counts: NDArray[np.int64], users: int, epsilon: float, seeds: list[int]) -> Iterator[tuple[str, str, Floats]]:
    """Yield method, form and density."""
    for number, (name, contender) in enumerate(CONTENDERS.items(), start=1):
        pieces = contender(counts, users, epsilon, np.random.default_rng([*seeds, number]))
        for weight, forms in ((np.ones(counts.shape), OWN_FORMS), (place.road, ROAD_FORMS)):
            for form, values in zip(forms, (pieces.count, pieces.nonnegative), strict=True):
                yield name, form, spread(pieces.piece, values, weight)
