"""The mechanisms of a deployment, one for each protected radius, and what their releases cost."""

from functools import cache

from geo.plane import Plane
from geo.privacy.predictive import Predictive, matching_test
from geo.privacy.window_mean import WindowMean, nano_epsilon_per_m

__all__ = ["Mechanisms"]


class Mechanisms:
    """Mechanisms of one plane, grid and ratio; each is built when it is first asked for, and kept.

    Parameters
    ----------
    plane, step_m, ratio
        As for `WindowMean` and `nano_epsilon_per_m`.
    tests_first
        Whether releases are those of `Predictive`.
    """

    def __init__(self, plane: Plane, step_m: int, ratio: float, *, tests_first: bool) -> None:
        self.plane, self.tests_first = plane, tests_first
        self._step_m, self._ratio = step_m, ratio
        self.window_mean, self.predictive = cache(self._window_mean), cache(self._predictive)

    def most_micro(self, radius_m: float, between_m: float) -> int:
        """Return the most that one release with a protected radius tells of two places so far apart, in micro-epsilon."""
        if self.tests_first:
            return sum(self.predictive(radius_m).charge_micro(between_m))
        return self.window_mean(radius_m).charge_micro(between_m)

    def _window_mean(self, radius_m: float) -> WindowMean:
        return WindowMean(self.plane, self._step_m, nano_epsilon_per_m(self._ratio, radius_m))

    def _predictive(self, radius_m: float) -> Predictive:
        mechanism = self.window_mean(radius_m)
        return Predictive(mechanism, *matching_test(self.plane, mechanism.radius_m(0.9)))
