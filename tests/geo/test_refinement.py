"""Coarser noise is finer noise and an independent remainder, exactly; readers who put their releases together gain nothing."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.plane import Plane, Region
from geo.privacy.discrete_laplace import DiscreteLaplace
from geo.privacy.refinement import Chain, Remainder
from geo.privacy.window_mean import WindowMean, nano_epsilon_per_m

SECRET = b"a secret for tests, 32 bytes ..."
PLANE = Plane(Region("helsinki", 60.0, 24.5, 60.4, 25.4))
FINE, COARSE = Decimal("0.05"), Decimal("0.0125")
USERS = 20_000


def chain(*radii: float) -> Chain:
    return Chain([WindowMean(PLANE, 10, nano_epsilon_per_m(4, radius)) for radius in radii])


def added(noise: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Return the law of the sum of two independent integers, on the places of the first, from laws on -n .. n."""
    width, reach = 2 ** int(np.ceil(np.log2(2 * len(noise)))), len(noise) // 2
    return np.asarray(np.fft.irfft(np.fft.rfft(noise, width) * np.fft.rfft(more, width), width)[reach : 3 * reach + 1])


@settings(max_examples=15, deadline=None)
@given(st.decimals("0.02", "2", places=4), st.decimals("0.1", "0.95", places=3))
def test_fine_noise_and_remainder_are_coarse_noise(fine: Decimal, share: Decimal) -> None:
    coarse = fine * share
    z = np.arange(-int(60 / coarse), int(60 / coarse) + 1)
    noise, wanted = DiscreteLaplace(fine).pmf(z), DiscreteLaplace(coarse).pmf(z)
    np.testing.assert_allclose(added(noise, Remainder(fine, coarse).pmf(z)), wanted, atol=1e-12)
    assert np.abs(added(noise, wanted) - wanted).max() > 0.05 * wanted.max()


def test_the_thresholds_are_those_of_the_stated_law() -> None:
    remainder = Remainder(FINE, COARSE)
    z = np.arange(-remainder.reach, remainder.reach)
    below = np.array([int(value) for value in remainder.thresholds()], dtype=object) / 2.0**128
    np.testing.assert_allclose(below.astype(float), np.cumsum(remainder.pmf(z)), atol=1e-12)
    assert remainder.delta < 2.0**-90


def test_edges_of_a_draw() -> None:
    remainder = Remainder(FINE, COARSE)
    bits = np.zeros((3, 16), np.uint8)
    bits[1, 15], bits[2] = 0x80, 255
    assert remainder.sample(bits).tolist() == [-remainder.reach, 0, remainder.reach]


def test_each_level_has_its_own_noise_and_the_key_is_everything() -> None:
    three, user, cells = chain(100, 300, 900), np.arange(USERS, dtype=np.uint64), np.zeros((USERS, 2), np.int64)
    draws = three.perturb(SECRET, user, 7, cells)
    for level, draw in zip(three.levels, draws, strict=True):
        assert abs(draw.cells.std() / np.sqrt(level.noise.variance) - 1) < 0.03
        assert abs(np.corrcoef(draw.cells.T)[0, 1]) < 5 / np.sqrt(USERS)
    np.testing.assert_array_equal(draws[0].cells, three.levels[0].perturb(SECRET, user, 7, cells)[0])
    steps = [draws[1].cells - draws[0].cells, draws[2].cells - draws[1].cells]
    for step, draw in zip(steps, draws, strict=False):
        assert abs(np.corrcoef(step[:, 0], draw.cells[:, 0])[0, 1]) < 5 / np.sqrt(USERS)
    again = three.perturb(SECRET, user, 7, cells)
    assert all((a.cells == b.cells).all() and (a.look == b.look).all() for a, b in zip(draws, again, strict=True))
    others = [
        three.perturb(SECRET, user, 8, cells),
        three.perturb(SECRET, user, 7, cells + 1),
        three.perturb(SECRET[::-1], user, 7, cells),
        chain(100, 310, 900).perturb(SECRET, user, 7, cells),
    ]
    for other in others:
        moved = other[2].cells - other[1].cells
        assert np.mean(moved == steps[1]) < 0.25
        assert not np.isin(other[2].look, draws[2].look).any()


def test_readers_who_put_all_levels_together_gain_nothing() -> None:
    """The best mean of all levels, over all weights, is the finest alone; independent noise at the coarser ones would be better."""
    levels = chain(100, 141.4, 200)
    user, cells = np.arange(100_000, dtype=np.uint64), np.zeros((100_000, 2), np.int64)
    errors = np.stack([draw.cells[:, 0] for draw in levels.perturb(SECRET, user, 1, cells)]).astype(float)

    def best(noise: np.ndarray) -> float:
        inverse = np.linalg.inv(np.cov(noise))
        return float(1 / inverse.sum())

    alone = float(np.var(errors[0]))
    assert best(errors) > 0.995 * alone
    apart = np.stack([level.perturb(SECRET, user + np.uint64(k * len(user)), 1, cells)[0][:, 0] for k, level in enumerate(levels.levels)])
    assert best(apart.astype(float)) < 0.8 * alone


def test_levels_out_of_order_are_refused() -> None:
    for radii in ((200, 100), (100, 100), ()):
        with pytest.raises(ValueError, match=r"levels|coarse"):
            chain(*radii)
    with pytest.raises(ValueError, match="grid step"):
        Chain([WindowMean(PLANE, 10, 10**7), WindowMean(PLANE, 20, 10**6)])


def test_the_deltas_of_all_levels_add_up() -> None:
    assert chain(100).delta == chain(100).levels[0].delta < chain(100, 200, 400).delta < 2.0**-60
