"""Smoothing of published noisy counts over ticks: post-processing, free of budget."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Level", "smooth"]

Reals = NDArray[np.float64]

_MEMORY = 0.9
"""Weight of the past in the running estimate of how fast each count drifts."""


class Level(NamedTuple):
    """What the filter knows of each node; each field has shape (n,).

    Attributes
    ----------
    value : ndarray of float64
        Estimated count.
    variance : ndarray of float64
        Its error variance; infinite if the node was never measured.
    drift : ndarray of float64
        Estimated variance of the change of the true count from one publication to the next.
    noisy, noise : ndarray of float64
        The last noisy counts and their variances.
    """

    value: Reals
    variance: Reals
    drift: Reals
    noisy: Reals
    noise: Reals


def smooth(before: Level | None, noisy: NDArray[np.int64] | Reals, noise: Reals) -> Level:
    """Take in the noisy counts of one more publication.

    A local-level Kalman filter for each node: the true count is a random walk whose steps have variance q, the noise a known variance r.
    With V = P + q: x moves by V / (V + r) · (y - x), P becomes V r / (V + r). q is an average, with exponentially fading weights, of
    (y - y_before)² - r - r_before, and at least 0. Uses published noise variances and noisy counts only. Apply it before
    `consistency.estimate`, whose input are `value` and `variance`: nodes are filtered alone, and add up only after that.

    Parameters
    ----------
    before : Level or None
        After the last publication; None at the first.
    noisy : ndarray with shape (n,)
    noise : ndarray of float64 with shape (n,)
        Noise variances: 0 is exact, infinite is not measured.

    Returns
    -------
    Level
    """
    y, r = np.where(np.isinf(noise), 0.0, noisy), np.asarray(noise, np.float64)
    if before is None:
        return Level(y, r.copy(), r.copy(), y, r)
    measured = np.isfinite(r) & np.isfinite(before.noise)
    with np.errstate(invalid="ignore"):
        jump = (y - before.noisy) ** 2 - r - before.noise
        drift = np.where(measured, _MEMORY * before.drift + (1 - _MEMORY) * jump, before.drift)
        prior = before.variance + np.maximum(drift, 0.0)
        gain = np.where(np.isinf(r), 0.0, np.where(np.isinf(prior) | (r == 0), 1.0, prior / np.where(prior + r > 0, prior + r, 1.0)))
        variance = np.where(np.isinf(r), prior, gain * r)
    return Level(before.value + gain * (y - before.value), variance, drift, y, r)
