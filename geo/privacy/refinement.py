"""Many audiences, one look: coarser releases of a position are its finest release with more noise added."""

import hashlib
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from geo.privacy.discrete_laplace import DiscreteLaplace
from geo.privacy.prf import look_bits, subkey
from geo.privacy.thresholds import BITS, DRAW_BYTES, GUARD_BITS, ONE, Thresholds, agreed, exp_bounds
from geo.privacy.window_mean import WindowMean

__all__ = ["Chain", "Draw", "Remainder"]


class Remainder:
    """What turns fine discrete Laplace noise into coarse: if Z is fine and R is drawn independently, Z + R is exactly coarse.

    Guarantee
        None of its own: it never sees a true value. Whoever learns Z + R, or Z and R both, learns a function of the fine release and of
        independent noise, and so no more than the fine release tells.
    Formula
        R = 0 with probability q = (sinh(coarse / 2) / sinh(fine / 2))², else a coarse draw: P(R = r) = (1 - q) (1 - a) / (1 + a) a^|r|
        for r ≠ 0, a = exp(-coarse). With b = exp(-fine), the generating function of the noise is (1 - b)² / ((1 - b s)(1 - b / s)); the
        coarse one divided by the fine one is q + (1 - q) times the coarse one.
    Source
        The continuous case, Lap(b₁) = Lap(b₂) + R with R = 0 with probability (b₂ / b₁)², is that of Koufogiannis, Han, Pappas, "Gradual
        release of sensitive data under differential privacy" (Journal of Privacy and Confidentiality 7(2), 2016); on the integers, by the
        division above.

    A draw reads 128 uniform bits, as `DiscreteLaplace` does.

    Parameters
    ----------
    fine, coarse : Decimal
        Exponents of the two distributions, coarse < fine.

    Attributes
    ----------
    zero : float
        q.
    reach : int
        The largest size of a draw; mass beyond it is drawn as ±reach.
    delta : Fraction
        Upper bound of the total variation distance between one draw and the exact distribution, about 2^-100.

    Raises
    ------
    ValueError
        If `coarse` is not below `fine`.
    """

    def __init__(self, fine: Decimal, coarse: Decimal) -> None:
        if not coarse < fine:
            raise ValueError("`coarse` should be an exponent below `fine`: coarser noise has the smaller one.")
        self.fine, self.coarse = fine, coarse
        noise = DiscreteLaplace(coarse)
        self.reach = noise.reach
        self._noise = noise
        self.zero = float(np.sinh(float(coarse) / 2) / np.sinh(float(fine) / 2)) ** 2
        self._table, self.delta = _remainder_table(fine, coarse, noise.reach)
        self.delta += noise.delta

    def pmf(self, r: ArrayLike) -> NDArray[np.float64]:
        """Return P(R = r) of the exact distribution as floats with the shape of `r`."""
        places = np.asarray(r)
        return np.asarray((places == 0) * self.zero + (1 - self.zero) * self._noise.pmf(places))

    def thresholds(self) -> list[int]:
        """Return floor(2^128 P(R <= r)) for r = -reach .. reach - 1."""
        return self._table.values()

    def sample(self, bits: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Turn uniform bits of shape (n, 16), rows of little-endian 128-bit integers, into draws of shape (n,)."""
        return self._table.draw(bits) - self.reach


class Draw(NamedTuple):
    """One level of a chain for n users.

    Attributes
    ----------
    cells
        Noisy cells, shape (n, 2), not clipped.
    look
        Keyed digests, shape (n,): two releases of a user and tick at this level are the same iff they agree.
    """

    cells: NDArray[np.int64]
    look: NDArray[np.uint64]


class Chain:
    """Releases of one position at several precisions, each with the exact noise of its own `WindowMean`.

    Guarantee
        All levels together: that of the finest `WindowMean` alone, with the deltas of all draws added up. One level alone: that of its own.
    Unit of privacy, neighbouring relation
        Those of `WindowMean`.
    Formula
        cells₀ = finest draw; cellsᵢ = cellsᵢ₋₁ + (R₁, R₂) with independent `Remainder`s, on cells before they are clipped.
    Source
        Koufogiannis, Han, Pappas (2016), as for `Remainder`.

    A remainder is a keyed function of the same things as the finest draw, and of the parameters of its own and all finer levels.

    Parameters
    ----------
    levels : sequence of WindowMean
        At least one, of one plane and grid step, the finest first; no two alike.

    Raises
    ------
    ValueError
        If the levels are not in order, or not on one grid.
    """

    def __init__(self, levels: Sequence[WindowMean]) -> None:
        if not levels:
            raise ValueError("`levels` should hold at least one mechanism.")
        if len({(level.plane.region, level.step_m) for level in levels}) > 1:
            raise ValueError("`levels` should all have one region and one grid step.")
        self.levels = tuple(levels)
        parameters = b"".join(level.parameters for level in levels)
        size = len(levels[0].parameters)
        self._steps = [
            (Remainder(fine.exponent, coarse.exponent), hashlib.blake2b(parameters[: (place + 2) * size], digest_size=32).digest())
            for place, (fine, coarse) in enumerate(pairwise(levels))
        ]

    @property
    def delta(self) -> Fraction:
        """Total variation distance between the noise of one user's releases at all levels and the exact distributions."""
        return self.levels[0].delta + sum((2 * remainder.delta for remainder, _ in self._steps), Fraction(0))

    def perturb(self, secret: bytes, user: NDArray[np.uint64], tick: int, cells: NDArray[np.int64]) -> list[Draw]:
        """Draw all levels for n users.

        Parameters
        ----------
        secret, user, tick, cells
            As for `WindowMean.perturb`.

        Returns
        -------
        list of Draw
            One for each level, in their order.
        """
        draws = [Draw(*self.levels[0].perturb(secret, user, tick, cells))]
        for remainder, parameters in self._steps:
            bits, look = look_bits(subkey(secret, b"refinement", parameters), user, tick, cells, 2 * DRAW_BYTES)
            more = remainder.sample(bits.reshape(-1, DRAW_BYTES)).reshape(-1, 2)
            draws.append(Draw(draws[-1].cells + more, look))
        return draws


@lru_cache(maxsize=128)
def _remainder_table(fine: Decimal, coarse: Decimal, reach: int) -> tuple[Thresholds, Fraction]:
    """Return the thresholds of r = -reach .. reach - 1, and the rounding's share of delta."""
    low_a, high_a = exp_bounds(coarse)
    low_b, high_b = exp_bounds(fine)
    # 1 - q = 1 - b (1 - a)² / (a (1 - b)²)
    low_q = low_b * (ONE - high_a) ** 2 // (high_a * (ONE - low_b) ** 2 // ONE + 1)
    high_q = high_b * (ONE - low_a) ** 2 // (low_a * (ONE - high_b) ** 2 // ONE) + 1
    # P(R >= k) = P(R <= -k) = (1 - q) a^k / (1 + a)
    low, high = (ONE - high_q) * ONE // (ONE + high_a), (ONE - low_q) * ONE // (ONE + low_a) + 1
    tails: list[int] = []
    for _ in range(reach):
        low, high = low * low_a >> GUARD_BITS, (high * high_a >> GUARD_BITS) + 1
        tails.append(agreed(low, high))
    return Thresholds(tails[::-1] + [(1 << BITS) - 1 - tail for tail in tails]), Fraction(2 * reach + 1, 1 << (BITS + 1))
