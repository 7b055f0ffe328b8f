import math
import pickle
import time
from bisect import bisect_right
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.privacy.discrete_laplace import MAX_EXPONENT, MIN_WIDE_EXPONENT, DiscreteLaplace, WideDiscreteLaplace

TOP = 1 << 128
EXPONENTS = [Decimal(text) for text in ("0.005", "0.02", "0.3333333333333333333333333333333333333333", "1", "7.25", "50")]
CONSTRUCTION_S = 1.5
exponents = st.decimals("0.01", "50", places=6)


def rows(pairs):
    return np.frombuffer(b"".join(a.to_bytes(16, "little") + b.to_bytes(16, "little") for a, b in pairs), dtype=np.uint8).reshape(-1, 32)


def masses(thresholds):
    return [int(c) for c in np.diff(np.array([0, *thresholds, TOP], dtype=object))]


def powers(exponent, upto):
    """Return a^k for k = 0 .. upto, as lower and upper bounds at 150 digits, each by its own exponential."""
    out = []
    for rounding in (ROUND_FLOOR, ROUND_CEILING):
        context = Context(prec=150, rounding=rounding)
        step = context.next_minus if rounding == ROUND_FLOOR else context.next_plus
        out.append(
            [Fraction(step(context.exp(context.multiply(exponent.copy_negate(), k)))) if k else Fraction(1) for k in range(upto + 1)]
        )
    return out


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_both_tables_equal_an_independent_computation_at_150_digits(exponent):
    noise = WideDiscreteLaplace(exponent)
    m, blocks = noise.block, noise.reach // noise.block
    low, high = powers(exponent, m)
    low_step, high_step = powers(Context(prec=60).multiply(exponent, m), blocks)
    bounds = []
    for a, b, step_a, step_b in ((low, high, low_step, high_step), (high, low, high_step, low_step)):
        # `a` bounds powers from one side, `b` from the other.
        fine = [math.floor(TOP * (1 - b[r]) / (1 - a[m])) for r in range(1, m)]
        negative = [math.floor(TOP * a[1] * step_a[q] / (1 + b[1])) for q in range(blocks)]
        positive = [math.floor(TOP * (1 - step_b[q] / (1 + a[1]))) for q in range(1, blocks)]
        bounds.append((fine, negative[::-1] + positive))
    assert bounds[0] == bounds[1]
    assert (noise.fine.values(), noise.coarse.values()) == bounds[0]


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_the_two_draws_together_have_the_probabilities_of_one_long_table(exponent):
    wide, long = WideDiscreteLaplace(exponent), DiscreteLaplace(exponent)
    coarse, fine = masses(wide.coarse.values()), masses(wide.fine.values())
    m, blocks = wide.block, len(coarse) // 2
    table = {}
    for c, mass in enumerate(coarse):
        block = c - blocks
        for place, part in enumerate(fine):
            z = block * m + place if block >= 0 else (block + 1) * m - 1 - place
            table[z] = Fraction(mass * part, TOP * TOP)
    assert len(table) == 2 * wide.reach
    reference = dict(zip(range(-long.reach, long.reach + 1), masses(long.thresholds()), strict=True))
    distance = sum(abs(table.get(z, 0) - Fraction(reference.get(z, 0), TOP)) for z in table.keys() | reference.keys()) / 2
    assert distance <= wide.delta + long.delta
    assert wide.delta < Fraction(1, 1 << 99)


@settings(max_examples=40, deadline=None)
@given(exponents, st.lists(st.tuples(st.integers(0, TOP - 1), st.integers(0, TOP - 1)), min_size=1, max_size=20))
def test_sampler_equals_big_integer_comparison(exponent, pairs):
    noise = WideDiscreteLaplace(exponent)
    coarse, fine = noise.coarse.values(), noise.fine.values()
    pairs = [*pairs, (0, 0), (TOP - 1, TOP - 1), *((t, f) for t in coarse[::7] for f in fine[:1])]
    expected = []
    for a, b in pairs:
        block, place = bisect_right(coarse, a) - (len(coarse) + 1) // 2, bisect_right(fine, b)
        expected.append(block * noise.block + place if block >= 0 else (block + 1) * noise.block - 1 - place)
    drawn = noise.sample(rows(pairs))
    assert drawn.tolist() == expected
    assert drawn.min() >= -noise.reach
    assert drawn.max() < noise.reach


def test_the_smallest_exponent_is_quick_small_and_pickles_as_its_exponent():
    start = time.process_time()
    noise = WideDiscreteLaplace(MIN_WIDE_EXPONENT)
    assert time.process_time() - start < CONSTRUCTION_S
    assert len(noise.coarse) + len(noise.fine) < 100_000
    assert noise.reach > 100 / float(MIN_WIDE_EXPONENT) * math.log(2)
    assert len(pickle.dumps(noise)) < 300
    assert pickle.loads(pickle.dumps(noise)).reach == noise.reach


@pytest.mark.parametrize(
    "exponent", [MIN_WIDE_EXPONENT / 2, MAX_EXPONENT + 1, Decimal(0), Decimal(-1), Decimal("NaN"), Decimal("Infinity")]
)
def test_illegal_exponents_are_refused(exponent):
    with pytest.raises(ValueError, match="`exponent`"):
        WideDiscreteLaplace(exponent)


def test_wrong_bits_are_refused():
    with pytest.raises(ValueError, match="`bits`"):
        WideDiscreteLaplace(Decimal(1)).sample(np.zeros((2, 16), dtype=np.uint8))
