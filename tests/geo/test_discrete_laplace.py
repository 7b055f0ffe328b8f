import math
import pickle
import time
from bisect import bisect_right
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.privacy.discrete_laplace import MAX_EXPONENT, MIN_EXPONENT, DiscreteLaplace

TOP = 1 << 128
DELTA_BOTH_AXES = Fraction(1, 1 << 60)
TYPICAL = Decimal("0.049")
CONSTRUCTION_S = 0.3
EXPONENTS = [Decimal(text) for text in ("0.02", "0.049", "0.3333333333333333333333333333333333333333", "1", "7.25", "50")]
exponents = st.decimals("0.01", "50", places=6)


def bits(numbers):
    return np.frombuffer(b"".join(n.to_bytes(16, "little") for n in numbers), dtype=np.uint8).reshape(-1, 16)


def counts(noise):
    table = noise.thresholds()
    return np.diff(np.array([0, *table, TOP], dtype=object))


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_thresholds_equal_an_independent_computation_at_130_digits(exponent):
    noise = DiscreteLaplace(exponent)
    wide = Context(prec=130)
    brackets = []
    for rounding, step in ((ROUND_FLOOR, wide.next_minus), (ROUND_CEILING, wide.next_plus)):
        context = Context(prec=130, rounding=rounding)
        outward = Context(prec=130, rounding=ROUND_CEILING if rounding == ROUND_FLOOR else ROUND_FLOOR)
        near = wide.exp(exponent.copy_negate())
        divisor = outward.add(1, wide.next_plus(near) if rounding == ROUND_FLOOR else wide.next_minus(near))
        scale = context.divide(Decimal(TOP), divisor)
        brackets.append(
            [
                math.floor(context.multiply(scale, step(wide.exp(wide.multiply(exponent.copy_negate(), k)))))
                for k in range(1, noise.reach + 1)
            ]
        )
    assert brackets[0] == brackets[1]
    tails = brackets[0]
    assert noise.thresholds() == tails[::-1] + [TOP - 1 - tail for tail in tails]


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_both_axes_are_within_2_to_the_minus_60(exponent):
    noise = DiscreteLaplace(exponent)
    assert 2 * noise.delta <= DELTA_BOTH_AXES
    assert noise.delta < Fraction(1, 1 << 99)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_delta_bounds_the_distance_to_the_exact_distribution(exponent):
    noise = DiscreteLaplace(exponent)
    context = Context(prec=150)
    a = context.exp(exponent.copy_negate())
    peak = context.divide(context.subtract(1, a), context.add(1, a))
    mass = [
        Fraction(context.multiply(peak, context.exp(context.multiply(exponent.copy_negate(), abs(z)))))
        for z in range(-noise.reach, noise.reach + 1)
    ]
    beyond = 1 - sum(mass)
    distance = (sum(abs(Fraction(int(c), TOP) - p) for c, p in zip(counts(noise), mass, strict=True)) + beyond) / 2
    assert distance <= noise.delta


@settings(max_examples=40, deadline=None)
@given(exponents, st.lists(st.integers(0, TOP - 1), min_size=1, max_size=20), st.data())
def test_sampler_equals_big_integer_comparison(exponent, numbers, data):
    noise = DiscreteLaplace(exponent)
    table = noise.thresholds()
    picked = data.draw(st.lists(st.sampled_from(table), max_size=10))
    near = [min(max(value + shift, 0), TOP - 1) for value in picked for shift in (-1, 0, 1)]
    ties = [(value >> 64 << 64) | low for value in picked for low in (0, (1 << 64) - 1)]
    numbers = [*numbers, *near, *ties, 0, TOP - 1]
    expected = [bisect_right(table, n) - noise.reach for n in numbers]
    assert noise.sample(bits(numbers)).tolist() == expected


def test_equal_high_words_are_resolved_by_the_low_words():
    noise = DiscreteLaplace(TYPICAL)
    table = noise.thresholds()
    small = [value for value in table if value < 1 << 64]
    assert len(small) > 100
    numbers = [value + shift for value in small for shift in (-1, 0, 1)]
    numbers += [TOP - 1 - n for n in numbers]
    assert noise.sample(bits(numbers)).tolist() == [bisect_right(table, n) - noise.reach for n in numbers]


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_extremes_and_symmetry(exponent):
    noise = DiscreteLaplace(exponent)
    assert noise.sample(bits([0, TOP - 1])).tolist() == [-noise.reach, noise.reach]
    body = counts(noise)[1:-1]
    assert body.tolist() == body[::-1].tolist()
    assert noise.sample(np.empty((0, 16), dtype=np.uint8)).shape == (0,)


@settings(max_examples=60, deadline=None)
@given(exponents)
def test_neighbouring_cells_stay_within_the_exponent(exponent):
    # Both counts are exact up to less than 1, so the ratio may exceed exp(exponent) by a factor (1 + 1/c) / (1 - 1/c').
    noise = DiscreteLaplace(exponent)
    body = [int(c) for c in counts(noise)[1:-1]]
    for c, d in pairwise(body):
        small, large = min(c, d), max(c, d)
        if small < 1 << 20:
            continue
        ratio = math.log(Fraction(large, small))
        assert ratio <= float(exponent) * (1 + 1e-12) + 4 / small + 1e-12


def test_floats_describe_the_table():
    noise = DiscreteLaplace(TYPICAL)
    z = np.arange(-noise.reach, noise.reach + 1)
    exact = np.array([float(Fraction(int(c), TOP)) for c in counts(noise)])
    np.testing.assert_allclose(noise.pmf(z), exact, rtol=1e-9, atol=1e-29)
    np.testing.assert_allclose(noise.cdf(z), np.cumsum(exact), rtol=1e-9, atol=1e-29)
    assert noise.variance == pytest.approx(float(np.sum(exact * z.astype(float) ** 2)))
    assert noise.scale == pytest.approx(1 / 0.049)
    assert noise.cdf(0.5) == noise.cdf(0)


def test_construction_is_quick_and_pickles_small():
    start = time.process_time()
    noise = DiscreteLaplace(Decimal("0.0490123"))
    assert time.process_time() - start < CONSTRUCTION_S
    data = pickle.dumps(noise)
    assert len(data) < 300
    assert pickle.loads(data).thresholds() == noise.thresholds()


@pytest.mark.parametrize("exponent", [MIN_EXPONENT / 2, MAX_EXPONENT + 1, Decimal(0), Decimal(-1), Decimal("NaN"), Decimal("Infinity")])
def test_illegal_exponents_are_refused(exponent):
    with pytest.raises(ValueError, match="`exponent`"):
        DiscreteLaplace(exponent)


def test_wrong_bits_are_refused():
    with pytest.raises(ValueError, match="`bits`"):
        DiscreteLaplace(Decimal(1)).sample(np.zeros((2, 8), dtype=np.uint8))
