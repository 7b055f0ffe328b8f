"""Views and calendars in plain words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from geo.plane import Plane
from geo.privacy.certificate import belief_bound
from streaming.mechanisms import Mechanisms
from streaming.policy.calendars import DAY_MINUTES, DAYS
from streaming.policy.resolution import View

__all__ = ["Precision", "belief_words", "view_words", "week_words"]

HALF, MOST = 0.5, 0.95
DOUBT = 0.1
FEW = 3
FORMS = {
    "point": "a position",
    "anchor": "a public place near a position",
    "category": "the category of a public place near a position",
    "candidates": "{candidates} public places near a position",
}
LEVELS = {
    "none": "never offered",
    "perturbed": "told as their category only",
    "full": "told by name",
}


@dataclass(frozen=True)
class Precision:
    """What the settings promise, as far as radii and counts depend on it.

    Parameters
    ----------
    plane : Plane
    step_m : int
        Grid step in plane metres.
    ratio : float
        Largest likelihood ratio within a protected radius.
    radius_m : float
        The radius at which the ledger measures every charge.
    releases_per_window : int
        The ledger's limit, in releases at that radius.
    window_ticks : int
        w.
    tick_s : float
        Length of a base tick in seconds.
    predictive : bool, default False
        Whether a release may be the last one again, after a private test that is paid for.
    """

    plane: Plane
    step_m: int
    ratio: float
    radius_m: float
    releases_per_window: int
    window_ticks: int
    tick_s: float
    predictive: bool = False

    @cached_property
    def mechanisms(self) -> Mechanisms:
        """The mechanism of each protected radius."""
        return Mechanisms(self.plane, self.step_m, self.ratio, tests_first=self.predictive)

    def releases(self, view: View) -> int:
        """Return how many releases of a view fit into a window: the ledger's limit if nobody else is served, and the due ticks."""
        limit = self.releases_per_window * self.mechanisms.window_mean(self.radius_m).charge_micro(self.radius_m)
        return min(limit // self.mechanisms.most_micro(view.radius_m, self.radius_m), -(-self.window_ticks // view.every))


def view_words(view: View | None, precision: Precision) -> str:
    """Return what an audience gets, as a part of a sentence."""
    if view is None:
        return "nothing, and not even whether there is anything"
    mechanism = precision.mechanisms.window_mean(view.radius_m)
    text = (
        f"{FORMS[view.form].format(candidates=view.candidates)} every {view.every * precision.tick_s:g} s; the position is within "
        f"{mechanism.radius_m(HALF):.0f} m of the true one half of the time (r50), and within {mechanism.radius_m(MOST):.0f} m 19 times "
        f"in 20 (r95), for a protected radius of {view.radius_m:.0f} m"
    )
    if precision.predictive:
        text += "; while it stays near enough, the last one is told again"
    if not view.levels:
        return text
    (_, rest), *named = view.levels
    told = [f"places of category {name} are {LEVELS[level]}" for name, level in named]
    return f"{text}; " + "; ".join([*told, f"{'all others' if told else 'places'} are {LEVELS[rest]}"])


def belief_words(view: View, precision: Precision) -> str:
    """Return the certificate of a view, for somebody who doubts that any promise is made."""
    loss = precision.mechanisms.most_micro(view.radius_m, view.radius_m) / 1e6
    most = precision.releases(view)
    if most < 1:
        return "the ledger's limit is below the charge of one such release: all are withheld"
    counts = {FEW: f"{FEW} releases", most: f"all {most} that the ledger lets through in {precision.window_ticks} ticks"}
    more = [f", {_percent(belief_bound(DOUBT, loss * n))} by {words}" for n, words in counts.items() if 1 < n <= most]
    return (
        f"someone who knows that you are at one of several places at most {view.radius_m:.0f} m from each other, and is "
        f"{_percent(DOUBT)} sure of one of them, can become at most {_percent(belief_bound(DOUBT, loss))} sure of it by one release"
        + "".join(more)
    )


def week_words(minutes: NDArray[np.bool_]) -> str:
    """Return when a mask of the minutes of a week holds: ``mon-fri 08:00-16:00, sat 10:00-12:00``."""
    if minutes.all():
        return "at all times"
    runs = [_runs(day) for day in minutes.reshape(len(DAYS), DAY_MINUTES)]
    parts = []
    first = 0
    for day in range(1, len(DAYS) + 1):
        if day == len(DAYS) or runs[day] != runs[first]:
            if runs[first]:
                name = DAYS[first] if day == first + 1 else f"{DAYS[first]}-{DAYS[day - 1]}"
                parts.append(f"{name} {' and '.join(runs[first])}")
            first = day
    return ", ".join(parts)


def _runs(day: NDArray[np.bool_]) -> Sequence[str]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], day, [False]]).astype(np.int8))).tolist()
    return [f"{_clock(start)}-{_clock(end)}" for start, end in zip(edges[::2], edges[1::2], strict=True)]


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def _percent(share: float) -> str:
    """Return a bound, rounded up (but for rounding noise)."""
    return f"{math.ceil(100 * share - 1e-9)} %"
