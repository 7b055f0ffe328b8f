"""Streams in the density bench: the schedules of w-event privacy on a dense and on a sparse week, through the same modules as the job."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from geo.privacy.budgets import epsilon_micro, level_budgets, node_budgets
from geo.privacy.consistency import estimate
from geo.privacy.dissimilarity import Dissimilarity
from geo.privacy.smoothing import smooth
from geo.privacy.tree_counts import TreeCounts
from geo.privacy.w_event import BudgetAbsorption, BudgetDistribution, Sample, Schedule, Uniform, advance, decide
from geo.tree import Tree
from jobs.bench.density.protocol import Mean, mean_of

__all__ = ["DENSE", "SCHEDULES", "SMOOTHED", "SPARSE", "ZEROS", "Stream", "StreamScore", "measure_streams"]

TICKS_PER_DAY = 96
DAYS = 7
GOLDEN = (math.sqrt(5) - 1) / 2
SECRET = b"no secret: the bench's users are nobody's"
SCHEDULES: dict[str, type[Schedule]] = {"Uniform": Uniform, "Sample": Sample, "BA": BudgetAbsorption, "BD": BudgetDistribution}
SMOOTHED = "Uniform, smoothed"
ZEROS = "zeros alone"
"""Spends nothing and tells nothing: a schedule whose error is no smaller is not useful on that stream, whatever its rank."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Stream:
    """A week of counts in quarters of an hour with a daily rhythm.

    Cell j has the mean largest · exp(spread · (z_j - z_top)) · (1 + a_j cos(2π (t / 96 - φ_j))) / (1 + a_j), z_j the j-th of evenly spread
    normal quantiles, a_j from 0.5 to 1 and φ_j from 0 to 1 by the golden ratio: most users are in few cells, and cells have their rush
    hours at different times. Counts are Poisson.

    Parameters
    ----------
    name
        What the tables call it.
    cells
        Number of cells.
    spread
        Standard deviation of the cells' logarithmic means.
    largest
        Largest mean of any cell and tick.
    """

    name: str
    cells: int
    spread: float
    largest: float

    def counts(self, rng: np.random.Generator, ticks: int) -> Integers:
        """Draw the first ticks of a week, shape (ticks, cells)."""
        order = np.arange(self.cells)
        z = np.array([NormalDist().inv_cdf((j + 0.5) / self.cells) for j in order])
        swing, phase = 0.5 + 0.5 * (order * GOLDEN % 1), order * GOLDEN**2 % 1
        rhythm = 1 + swing * np.cos(2 * np.pi * (np.arange(ticks)[:, None] / TICKS_PER_DAY - phase))
        return np.asarray(rng.poisson(self.largest * np.exp(self.spread * (z - z[-1])) * rhythm / (1 + swing)), np.int64)


DENSE = Stream("dense", 100, 2.1, 39_900.0)
"""Like T-Drive's taxis in Schäler et al. (PVLDB 16(8), 2023): 100 cells, largest count about 40,000, 90 % below some 1,800."""
SPARSE = Stream("sparse", 1_289, 1.8, 130.0)
"""Like Porto's taxis there: 1,289 cells, 90 % of the counts at most 2."""


@dataclass(frozen=True)
class StreamScore:
    """Mean absolute error per cell and tick of a schedule.

    Parameters
    ----------
    stream, schedule
        Names.
    window_ticks
        w.
    epsilon
        Budget of any w consecutive ticks.
    error
        Over runs.
    publications
        Part of the ticks with a new tree, over all runs.
    """

    stream: str
    schedule: str
    window_ticks: int
    epsilon: float
    error: Mean
    publications: float


def measure_streams(
    streams: Sequence[Stream], pairs: Sequence[tuple[int, float]], runs: int, ticks: int = DAYS * TICKS_PER_DAY
) -> list[StreamScore]:
    """Measure all schedules on the same counts.

    Parameters
    ----------
    streams : sequence of Stream
    pairs : sequence of (int, float)
        w and ε.
    runs : int
        Number of weeks, at least 1.
    ticks : int, default 672
        Ticks of each.

    Returns
    -------
    list of StreamScore
    """
    scores = []
    for number, stream in enumerate(streams):
        weeks = [stream.counts(np.random.default_rng([number, run]), ticks) for run in range(runs)]
        nothing = mean_of([float(counts.mean()) for counts in weeks])
        for window_ticks, epsilon in pairs:
            scores.append(StreamScore(stream.name, ZEROS, window_ticks, epsilon, nothing, 0.0))
            for name, kind in SCHEDULES.items():
                schedule = kind(epsilon_micro(epsilon), window_ticks)
                forms = (name, SMOOTHED) if kind is Uniform else (name,)
                errors: dict[str, list[float]] = {form: [] for form in forms}
                published = 0
                for run, counts in enumerate(weeks):
                    answers = list(_follow(schedule, counts, run, len(forms)))
                    published += sum(new for new, _ in answers)
                    for at, form in enumerate(forms):
                        errors[form].append(
                            float(np.mean([np.abs(shown[at] - true).mean() for (_, shown), true in zip(answers, counts, strict=True)]))
                        )
                scores += [
                    StreamScore(stream.name, form, window_ticks, epsilon, mean_of(values), published / (runs * ticks))
                    for form, values in errors.items()
                ]
    return scores


def _follow(schedule: Schedule, counts: Integers, run: int, forms: int) -> Iterator[tuple[bool, list[Integers]]]:
    """Yield for each tick whether it published, and the counts that stand after it: as released, and smoothed if there are two forms."""
    cells = counts.shape[1]
    tree = Tree(np.concatenate([[-1], np.zeros(cells, np.int64)]))
    test = Dissimilarity(tree, 1, "add-remove")
    mechanisms: dict[int, TreeCounts] = {}
    state, level = schedule.start(), None
    stand = [np.zeros(cells, np.int64)] * forms
    context = run.to_bytes(8, "little")
    for tick, leaf_counts in enumerate(counts):
        decision = decide(schedule, test, SECRET, state, tick, leaf_counts, context)
        if decision.action != "publish":
            state = advance(state, decision)
        else:
            if decision.publish not in mechanisms:
                budgets = node_budgets(tree, level_budgets(tree, decision.publish, workload=[0, cells]))
                mechanisms[decision.publish] = TreeCounts(tree, budgets, "add-remove")
            mechanism = mechanisms[decision.publish]
            noisy = mechanism.release(SECRET, tick, leaf_counts, context + state.dump())
            published = estimate(tree, noisy, mechanism.variance)
            state = advance(state, decision, published.count[test.tiles])
            stand = [published.count[tree.leaves]]
            if forms > 1:
                level = smooth(level, noisy, mechanism.variance)
                stand.append(estimate(tree, level.value, level.variance).count[tree.leaves])
        yield decision.action == "publish", stand
