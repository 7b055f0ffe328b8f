"""Mechanism W: one noisy grid cell for the mean of a user's fixes in a tick."""

import hashlib
import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from geo.plane import Plane
from geo.privacy.discrete_laplace import MIN_EXPONENT, DiscreteLaplace
from geo.privacy.prf import look_bits, subkey
from geo.privacy.thresholds import DRAW_BYTES

__all__ = ["WindowMean", "coarsest_radius_m", "nano_epsilon_per_m"]

_DOWN = Context(prec=60, rounding=ROUND_FLOOR)
_UP = Context(prec=60, rounding=ROUND_CEILING)
_DECIMALS = 6
_HALF_TURN = 180.0
_MAX_STEP_M = 100_000
_MAX_Q = 0.999999


def nano_epsilon_per_m(ratio: float, radius_m: float) -> int:
    """Return the privacy parameter that allows a likelihood ratio within a radius.

    floor(1e9 · ln(ratio) / radius_m), in units of 1e-9 per metre (Andrés et al., "Geo-indistinguishability", CCS 2013: ε = l / r).

    ====== ======== ======== ======= ========
    ratio  100 m    200 m    500 m   1000 m
    ====== ======== ======== ======= ========
    2      6931471  3465735  1386294 693147
    4      13862943 6931471  2772588 1386294
    10     23025850 11512925 4605170 2302585
    ====== ======== ======== ======= ========

    Parameters
    ----------
    ratio : float
        Largest ratio of the probabilities that two places give to one output, more than 1.
    radius_m : float
        Ground metres between the two places, more than 0.

    Raises
    ------
    ValueError
        If an argument is outside its range, or the result is below 1.
    """
    if not (math.isfinite(ratio) and ratio > 1):
        raise ValueError("`ratio` should be a finite number more than 1.")
    if not (math.isfinite(radius_m) and radius_m > 0):
        raise ValueError("`radius_m` should be a finite number of metres more than 0.")
    # Decimal's ln ignores the rounding mode, so one step down makes it a lower bound.
    log = _DOWN.next_minus(_DOWN.ln(Decimal(ratio)))
    nano = math.floor(_DOWN.divide(_DOWN.multiply(log, Decimal(10**9)), Decimal(radius_m)))
    if nano < 1:
        raise ValueError("`ratio` should be larger, or `radius_m` smaller: the result is below 1e-9 per metre.")
    return nano


def coarsest_radius_m(plane: Plane, step_m: int, ratio: float) -> float:
    """Return about the largest protected radius whose noise `WindowMean` can draw: where the exponent comes to its lower limit.

    Parameters
    ----------
    plane : Plane
    step_m : int
        Grid step in plane metres.
    ratio : float
        As for `nano_epsilon_per_m`.
    """
    return 0.999 * math.log(ratio) * step_m / (math.sqrt(2) * plane.scale_max * float(MIN_EXPONENT))


class WindowMean:
    """Mean of a window on a public grid, plus discrete Laplace noise on each axis.

    Guarantee
        For any two windows of a user whose means are at most D ground metres apart, any set S of outputs and any other inputs,
        P(output in S) <= exp(L) · P'(output in S) + delta · (1 + exp(L)), L = eps_m · (D + √2 · step_m).
    Unit of privacy
        The place of one user in one tick: all fixes of the window together. Releases of several ticks add their losses.
        Presence, that the user sent a fix in the tick, is public and not protected.
    Neighbouring relation
        Any two windows of the same user and tick, each with at least one fix; the means are those of the positions as
        the plane rounds and clips them. A window without a usable position counts as one at `fallback_cell`.
    Formula
        cell = round(mean / step); output = cell + (Z1, Z2), independent, P(Z = z) ∝ exp(-|z| · eps_m · step_m / (√2 · scale_max)).
        Each axis of two cells differs by at most |dx| / step + 1, and |dx| + |dy| <= √2 · scale_max · D, which gives L.
    Source
        The metric form of differential privacy of Andrés et al. (CCS 2013) and Chatzikokolakis et al. (PETS 2013), with the discrete
        distribution of Ghosh, Roughgarden, Sundararajan (STOC 2009).

    The noise is a keyed function of (user, tick, parameters, true cell): the same input gives the same output, so that repeating
    a run reveals nothing more and cannot be averaged, while another cell gets independent noise. The guarantee is over the secret, and
    assumes that BLAKE2b keyed with it is a pseudo-random function. Equal outputs at one tick in two runs show equal cells: a
    second run over changed input is a second release and has to be charged.

    Parameters
    ----------
    plane : Plane
        Public plane of the region.
    step_m : int
        Grid step in plane metres, 1 to 100000.
    nano_epsilon_per_m : int
        eps_m in units of 1e-9 per ground metre, at least 1. With `step_m` it has to give an exponent from 1e-4 to 50.

    Attributes
    ----------
    name : str
        What a release states as its mechanism.
    exponent : Decimal
        eps_m · step_m / (√2 · scale_max), rounded down to 40 digits.
    delta : Fraction
        Total variation distance between the noise of one release (both axes) and the exact distribution, below 2^-60.
    delta_reach_m : float
        Ground metres D up to which delta · (1 + exp(L)) <= 2^-30; 0 if there are none.
    fallback_cell : ndarray of int64 with shape (2,)
        Public cell of a window that has no usable position: the middle of the region.
    diagonal_m : Decimal
        √2 · step_m, rounded up: how much further apart than their means two cells may be.
    parameters : bytes
        Digest of all parameters, part of the noise's key.
    cell_bounds : ndarray of int64 with shape (4,)
        Smallest and largest cell: x0, y0, x1, y1.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """

    name = "window-mean/discrete-laplace-per-axis"

    def __init__(self, plane: Plane, step_m: int, nano_epsilon_per_m: int) -> None:
        if not 1 <= step_m <= _MAX_STEP_M:
            raise ValueError("`step_m` should be from 1 to 100000 metres.")
        if not 1 <= nano_epsilon_per_m < 1 << 63:
            raise ValueError("`nano_epsilon_per_m` should be at least 1 and below 2^63.")
        self.plane, self.step_m, self.nano_epsilon_per_m = plane, step_m, nano_epsilon_per_m
        self._epsilon = Decimal(nano_epsilon_per_m).scaleb(-9)
        divisor = _UP.multiply(_UP.next_plus(_UP.sqrt(Decimal(2))), Decimal(plane.scale_max))
        self.exponent = Context(prec=40, rounding=ROUND_FLOOR).divide(self._epsilon * step_m, divisor)
        self.noise = DiscreteLaplace(self.exponent)
        self.delta: Fraction = 2 * self.noise.delta
        loss = -30 * math.log(2) - math.log(self.delta)
        self.delta_reach_m = max(0.0, (loss - 1e-6) / float(self._epsilon) - math.sqrt(2) * step_m)
        self.diagonal_m = _UP.multiply(_UP.next_plus(_UP.sqrt(Decimal(2))), Decimal(step_m))
        self._step_mm = 1000 * step_m
        self.cell_bounds: NDArray[np.int64] = (2 * plane.bounds_mm + self._step_mm) // (2 * self._step_mm)
        self.fallback_cell: NDArray[np.int64] = self._clip(np.zeros(2, dtype=np.int64))
        for shared in (self.cell_bounds, self.fallback_cell):
            shared.flags.writeable = False
        middle = "laea/WGS84/region-middle/mm"
        text = repr((middle, *map(float.hex, plane.region.bounds)))
        text += repr((self.name, step_m, nano_epsilon_per_m, str(self.exponent)))
        self.parameters = hashlib.blake2b(text.encode(), digest_size=32).digest()

    def cells(self, sum_mm: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the grid cells of window means, clipped to the grid; halves round up.

        Parameters
        ----------
        sum_mm : ndarray of int64 with shape (n, 2)
            Sums of the positions of each window, plane millimetres; below 2^61 in size.
        count : ndarray of int64 with shape (n,)
            Positions in each sum, at least 0; windows without one get `fallback_cell`.

        Returns
        -------
        ndarray of int64 with shape (n, 2)

        Raises
        ------
        ValueError
            If a count is negative.
        """
        if np.any(count < 0):
            raise ValueError("`count` should not be negative.")
        divisor = np.maximum(count, 1)[:, None] * self._step_mm
        cells = self._clip((2 * sum_mm + divisor) // (2 * divisor))
        return np.where(count[:, None] > 0, cells, self.fallback_cell)

    def perturb(
        self, secret: bytes, user: NDArray[np.uint64], tick: int, cells: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Add the noise of this user, tick and true cell.

        Parameters
        ----------
        secret : bytes
            16 to 64 bytes.
        user : ndarray of uint64 with shape (n,)
            Identifiers.
        tick : int
            Number of the tick, a signed 64-bit integer.
        cells : ndarray of int64 with shape (n, 2)
            True cells from `cells`.

        Returns
        -------
        noisy_cells : ndarray of int64 with shape (n, 2)
            Not clipped; what follows is post-processing.
        look : ndarray of uint64 with shape (n,)
            Keyed digest of all that the noise is a function of: two releases of a user and tick are the same release, and spend once,
            iff these agree (but for a chance of 2^-64). It may be published: like equal noise, it tells only that the cells agree.

        Raises
        ------
        ValueError
            If `secret` has another length.
        """
        bits, look = look_bits(subkey(secret, b"window-mean", self.parameters), user, tick, cells, 2 * DRAW_BYTES)
        noise = self.noise.sample(bits.reshape(-1, DRAW_BYTES)).reshape(-1, 2)
        return np.asarray(cells + noise, dtype=np.int64), look

    def publish(self, noisy_cells: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the degrees of noisy cells, clipped to the public grid.

        Parameters
        ----------
        noisy_cells : ndarray of int64 with shape (n, 2)

        Returns
        -------
        ndarray of float64 with shape (n, 2)
            Latitude and longitude in degrees, six decimals, longitude in [-180, 180).
        """
        out = np.round(self.plane.to_degrees(self._clip(noisy_cells) * self._step_mm), _DECIMALS)
        out[out[:, 1] >= _HALF_TURN, 1] = -_HALF_TURN
        return out

    def charge_micro(self, radius_m: float) -> int:
        """Return the loss between any two windows whose means are at most a radius apart, snapping included.

        Parameters
        ----------
        radius_m : float
            Ground metres, at least 0.

        Returns
        -------
        int
            ceil(1e6 · eps_m · (radius_m + √2 · step_m)), in units of 1e-6.

        Raises
        ------
        ValueError
            If `radius_m` is outside its range.
        """
        if not (math.isfinite(radius_m) and radius_m >= 0):
            raise ValueError("`radius_m` should be a finite number of metres, at least 0.")
        return math.ceil(_UP.multiply(_UP.multiply(self._epsilon, Decimal(10**6)), _UP.add(Decimal(radius_m), self.diagonal_m)))

    def radius_m(self, q: float) -> float:
        """Return the distance that the noise stays within with probability `q`.

        The quantile of √(Z1² + Z2²) · step_m, exact over the two-dimensional lattice, divided by the plane's `scale_min`: an upper
        bound of the ground distance from the snapped mean to the released cell, also after clipping.

        Parameters
        ----------
        q : float
            Probability, more than 0 and at most 0.999999.

        Returns
        -------
        float
            Ground metres.

        Raises
        ------
        ValueError
            If `q` is outside its range.
        """
        if not 0 < q <= _MAX_Q:
            raise ValueError("`q` should be more than 0 and at most 0.999999.")
        return math.sqrt(_squared_quantile(self.exponent, q)) * self.step_m / self.plane.scale_min

    def _clip(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.clip(cells, self.cell_bounds[:2], self.cell_bounds[2:])


@lru_cache(maxsize=256)
def _squared_quantile(exponent: Decimal, q: float) -> int:
    """Return the smallest integer s with P(Z1² + Z2² <= s) >= q."""
    noise = DiscreteLaplace(exponent)
    # P(Z1² + Z2² > s) <= 4 a^√(s/2), far below 1e-6 at the upper end.
    low, high = -1, math.ceil((40 * noise.scale) ** 2) + 2
    while high - low > 1:
        middle = (low + high) // 2
        if _within(noise, middle) >= q:
            high = middle
        else:
            low = middle
    return high


def _within(noise: DiscreteLaplace, squared: int) -> float:
    i = np.arange(math.isqrt(squared) + 1)
    # A float root of an integer below 2^52 has the right floor.
    j = np.floor(np.sqrt((squared - i**2).astype(np.float64)))
    column = noise.pmf(i) * np.where(i > 0, 2.0, 1.0)
    return float(np.sum(column * (1.0 - 2.0 * noise.cdf(-j - 1))))
