"""Mechanism Predictive: ask privately whether the last noisy cell is still good, and draw a new one only if it is not."""

import hashlib
import math
from bisect import bisect_left
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geo.plane import Plane
from geo.privacy.discrete_laplace import MAX_EXPONENT, MIN_WIDE_EXPONENT, WideDiscreteLaplace
from geo.privacy.prf import look_bits, subkey
from geo.privacy.window_mean import WindowMean

__all__ = ["Charges", "Predictive", "matching_test"]

_UP = Context(prec=60, rounding=ROUND_CEILING)
_MAX_THRESHOLD_M = 100_000_000
_Q = 0.9
_STEPS = 100


class Charges(NamedTuple):
    """Losses at a protected radius, in units of 1e-6.

    An easy tick costs `test`, a hard one `test + noise`, a user's first release `noise`. What has to be free beforehand is the
    costlier outcome: `test + noise`, or `noise` where there is no prediction.
    """

    test: int
    noise: int


class Predictive:
    """Release the last noisy cell again while a noisy test finds it near enough, otherwise one from `WindowMean`.

    Guarantee
        For any two windows of a user whose means are at most D ground metres apart, any set S of cells and any other inputs,
        P(easy) <= exp(T) · P'(easy) + delta · (1 + exp(T)), and
        P(hard and cell in S) <= exp(T + N) · P'(hard and cell in S) + delta · (1 + exp(T + N)), with
        T = eps_θ · (D + √2 · step_m + 1) and N = eps_N · (D + √2 · step_m).
        A whole release, the outcome easy or hard together with the cell, so has a loss of at most T + N; a first release, which has no
        test, of N. The prediction, and whether there is one, are known to whoever sees the release.
    Unit of privacy
        The place of one user in one tick, as in `WindowMean`; presence is public. Releases of several ticks add their losses.
    Neighbouring relation
        That of `WindowMean`. A window without a usable position counts as one at its `fallback_cell`.
    Formula
        f = ⌊step_m · ‖cell - clip(prediction)‖⌋, in whole plane metres. Easy iff f <= threshold_m + Z, where
        P(Z = z) ∝ exp(-|z| · eps_θ / scale_max). Easy releases the prediction; hard releases cell + (Z1, Z2), the noise of `WindowMean`
        with eps_N, independent of Z.
    Proof of T
        Each axis of two cells differs by at most |dx| / step_m + 1, and clipping brings cells no further apart, so by the triangle
        inequality step_m · ‖cell - cell'‖ <= √(dx² + dy²) + √2 · step_m <= scale_max · D + √2 · step_m. The distance to a fixed point
        changes by no more than that, and rounding down adds less than 1: |f - f'| <= scale_max · D + √2 · step_m + 1. Both outcomes,
        Z >= f - threshold_m and its opposite, change by at most a factor exp(eps_θ / scale_max) in probability where f changes by 1, as
        P(Z = z) does where z does. scale_max >= 1 gives T. The sum of both axes in cells would need no rounding, but noise √2 times
        as large for the same eps_θ.
    Ledger
        Let a ledger hold the charges of a radius r, refuse a tick unless the costlier outcome is free in the window, and then charge what
        the outcome cost: `test` for easy, `test + noise` for hard. Then between two inputs that differ only in w consecutive ticks, in each
        by at most r, the loss is at most the ledger's limit, although what is spent depends on the data. The probability of a sequence of
        outcomes and cells is the product of its conditional ones. Given the sequence so far, prediction, ledger and refusals are functions
        of it alone, so each of the w factors changes by at most exp(its charge) and no other factor at all, and for every sequence that
        can occur those charges add up to at most the limit. This is a privacy filter for pure losses (Rogers, Roth, Ullman, Vadhan, NIPS
        2016; for other accountings Feldman and Zrnic, NeurIPS 2021, and Whitehouse et al., ICML 2023): what is adapted to is the outcome,
        which `test` has paid for. delta adds up over the ticks. It takes that

        - nothing but released values goes from one tick to the next: the prediction is the cell of a hard release, never a true one;
        - the parameters, the limit and these rules are public;
        - what depends on the ledger is seen only by those who see the outcomes too. A ledger that serves several audiences would tell one
          of them, by what it is refused, the outcomes of another: charge it the costlier outcome always.

        A refused tick may repeat the prediction at no cost.
    Source
        Chatzikokolakis, Palamidessi, Stronati, "A predictive differentially-private mechanism for mobility traces", PETS 2014, with the
        prediction that they call parrot.

    The test's noise is a keyed function of (user, tick, parameters, true cell, prediction), that of a cell the one of `WindowMean`: the
    same input gives the same release, another cell or prediction an independent test. The guarantee is over the secret, as there.

    Parameters
    ----------
    window_mean : WindowMean
        Plane, grid and eps_N of hard releases.
    test_nano_epsilon_per_m : int
        eps_θ in units of 1e-9 per ground metre, 1 to 2^63. eps_θ / scale_max has to be from 1e-7 to 50.
    threshold_m : int
        l in plane metres, 0 to 100,000,000.

    Attributes
    ----------
    name : str
        What a release states as its window_mean.
    exponent : Decimal
        eps_θ / scale_max, rounded down to 40 digits.
    noise : WideDiscreteLaplace
        Distribution of Z.
    delta : Fraction
        Total variation distance between all the noise of one release and the exact distribution, below 2^-60.
    delta_reach_m : float
        Ground metres D up to which delta · (1 + exp(T + N)) <= 2^-30; 0 if there are none.

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """

    name = "predictive/discrete-laplace-test"

    def __init__(self, window_mean: WindowMean, test_nano_epsilon_per_m: int, threshold_m: int) -> None:
        if not 1 <= test_nano_epsilon_per_m < 1 << 63:
            raise ValueError("`test_nano_epsilon_per_m` should be at least 1 and below 2^63.")
        if not 0 <= threshold_m <= _MAX_THRESHOLD_M:
            raise ValueError("`threshold_m` should be from 0 to 100000000 metres.")
        self.window_mean, self.test_nano_epsilon_per_m, self.threshold_m = window_mean, test_nano_epsilon_per_m, threshold_m
        self._epsilon = Decimal(test_nano_epsilon_per_m).scaleb(-9)
        self.exponent = Context(prec=40, rounding=ROUND_FLOOR).divide(self._epsilon, Decimal(window_mean.plane.scale_max))
        self.noise = WideDiscreteLaplace(self.exponent)
        self.delta: Fraction = self.noise.delta + window_mean.delta
        test, noise, step_m = float(self._epsilon), window_mean.nano_epsilon_per_m * 1e-9, window_mean.step_m
        loss = -30 * math.log(2) - math.log(self.delta) - 1e-6 - test
        self.delta_reach_m = max(0.0, loss / (test + noise) - math.sqrt(2) * step_m)
        text = repr((self.name, test_nano_epsilon_per_m, threshold_m, str(self.exponent)))
        self._parameters = hashlib.blake2b(text.encode() + window_mean.parameters, digest_size=32).digest()

    def release(
        self,
        secret: bytes,
        user: NDArray[np.uint64],
        tick: int,
        cells: NDArray[np.int64],
        prediction: NDArray[np.int64],
        has_prediction: NDArray[np.bool_],
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.uint64]]:
        """Test each user's prediction, and release it or a new noisy cell.

        Parameters
        ----------
        secret : bytes
            16 to 64 bytes.
        user : ndarray of uint64 with shape (n,)
            Identifiers.
        tick : int
            Number of the tick, a signed 64-bit integer.
        cells : ndarray of int64 with shape (n, 2)
            True cells from `WindowMean.cells`.
        prediction : ndarray of int64 with shape (n, 2)
            The cell that the user's last hard release returned, not clipped; anything where there is none.
        has_prediction : ndarray of bool with shape (n,)
            Whether there was one; a public fact, or a function of what was released.

        Returns
        -------
        noisy_cells : ndarray of int64 with shape (n, 2)
            Not clipped; those of the hard ones are the next predictions.
        easy : ndarray of bool with shape (n,)
            Who was sent the prediction again. Part of the release: it is covered by the guarantee, and what is charged depends on it.
        look : ndarray of uint64 with shape (n,)
            Keyed digest of all that outcome and cell are a function of, as in `WindowMean.perturb`, and the same as there if there is no
            prediction: two releases of a user and tick are the same release, and spend once, iff these agree. Published, it tells whether
            cell and prediction agree in two runs over changed input, in easy ticks too, where the cells alone would not.

        Raises
        ------
        ValueError
            If `secret` has another length.
        """
        key, both = subkey(secret, b"predictive-test", self._parameters), np.concatenate([cells, prediction], axis=1)
        bits, look = look_bits(key, user, tick, both, self.noise.draw_bytes)
        easy = np.asarray(has_prediction & (self._distance_m(cells, prediction) <= self.threshold_m + self.noise.sample(bits)))
        out, hard = prediction.copy(), ~easy
        out[hard], first_look = self.window_mean.perturb(secret, user[hard], tick, cells[hard])
        look[hard] = np.where(has_prediction[hard], look[hard], first_look)
        return out, easy, look

    def outcome_probabilities(self, cells: NDArray[np.int64], prediction: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return how probable the outcomes of the test are: for evaluation only, since it tells the true distance.

        Parameters
        ----------
        cells, prediction : ndarray of int64 with shape (n, 2)

        Returns
        -------
        ndarray of float64 with shape (n, 2)
            P(easy) = P(Z >= f - threshold_m) and P(hard), without cancellation in either tail.
        """
        margin = self.threshold_m - self._distance_m(cells, prediction)
        return np.stack([self.noise.cdf(margin), self.noise.cdf(-margin - 1)], axis=1)

    def easy_radius_m(self, q: float) -> float:
        """Return the distance from the prediction from which on an easy outcome has at most probability 1 - q.

        So far, with confidence `q`, the true cell of an easy release is from what was released: an upper bound in ground metres, also
        after clipping.

        Parameters
        ----------
        q : float
            Confidence, more than 0 and less than 1.

        Raises
        ------
        ValueError
            If `q` is outside its range.
        """
        if not 0 < q < 1:
            raise ValueError("`q` should be more than 0 and less than 1.")
        # P(easy) = P(Z >= f - threshold_m) falls in f.
        margins = range(-self.threshold_m, math.ceil(60 * self.noise.scale))
        margin = margins[bisect_left(margins, True, key=lambda z: float(self.noise.cdf(-z)) <= 1 - q)]
        return (self.threshold_m + margin + 1) / self.window_mean.plane.scale_min

    def charge_micro(self, radius_m: float) -> Charges:
        """Return the losses of test and noise between any two windows whose means are at most a radius apart, snapping included.

        Parameters
        ----------
        radius_m : float
            Ground metres, at least 0.

        Returns
        -------
        Charges
            ceil(1e6 · eps_θ · (radius_m + √2 · step_m + 1)) and `WindowMean.charge_micro`, in units of 1e-6.

        Raises
        ------
        ValueError
            If `radius_m` is outside its range.
        """
        noise = self.window_mean.charge_micro(radius_m)
        reach = _UP.add(_UP.add(Decimal(radius_m), self.window_mean.diagonal_m), Decimal(1))
        return Charges(math.ceil(_UP.multiply(_UP.multiply(self._epsilon, Decimal(10**6)), reach)), noise)

    def _distance_m(self, cells: NDArray[np.int64], prediction: NDArray[np.int64]) -> NDArray[np.int64]:
        bounds = self.window_mean.cell_bounds
        metres = (cells - np.clip(prediction, bounds[:2], bounds[2:])) * self.window_mean.step_m
        # Inside a plane squares stay below 2^52, where the float root of an integer has the right floor.
        return np.asarray(np.floor(np.sqrt(np.sum(metres**2, axis=1).astype(np.float64))), dtype=np.int64)


def matching_test(plane: Plane, accuracy_m: float, rho: float = 0.8, eta: float = 0.5) -> tuple[int, int]:
    """Return ε_θ and l of a test that goes with noise of a given accuracy: the paper's fixed-utility budget manager.

    As there, l = t / rho and l + t = accuracy_m / eta, where t is the 0.9 quantile of the test's noise; there t = c_θ / ε_θ with
    c_θ = ln 5 = 1.6094. Here t and l are whole plane metres, and ε_θ is the smallest with P(Z >= t) <= 0.1. So a prediction more than
    accuracy_m / eta ground metres off is released with probability at most 0.1. Predictions are seldom that far off: those of a parked
    user are as far as noise of this accuracy.

    Parameters
    ----------
    plane : Plane
    accuracy_m : float
        α in ground metres, more than 0: `WindowMean.radius_m(0.9)` of hard releases.
    rho : float, default 0.8
        Test's noise over threshold: smaller makes a good prediction fail less often, and the test dearer.
    eta : float, default 0.5
        Accuracy over the distance at which predictions are rejected: smaller makes the test cheaper and lets it accept worse ones.

    Returns
    -------
    test_nano_epsilon_per_m, threshold_m : int

    Raises
    ------
    ValueError
        If an argument is outside its range.
    """
    for name, value in (("accuracy_m", accuracy_m), ("rho", rho), ("eta", eta)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"`{name}` should be a finite number more than 0.")
    total_m = math.floor(accuracy_m * plane.scale_min / eta)
    noise_m = math.floor(total_m * rho / (1 + rho))
    if noise_m < 1:
        raise ValueError("`accuracy_m` should be larger, or `eta` smaller: the test's noise has less than a metre.")
    # P(Z >= t) = a^t / (1 + a).
    exponent = _least(lambda x: math.exp(-x * noise_m) / (1 + math.exp(-x)) <= 1 - _Q, float(MIN_WIDE_EXPONENT), float(MAX_EXPONENT))
    return math.ceil(exponent * plane.scale_max * 1e9), total_m - noise_m


def _least(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return about the smallest number from which on `holds`, from above."""
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
