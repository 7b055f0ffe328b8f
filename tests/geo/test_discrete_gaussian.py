import math
import pickle
from bisect import bisect_right
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.privacy.discrete_gaussian import MAX_SIGMA2, MIN_SIGMA2, DiscreteGaussian
from geo.privacy.zcdp import delta_of_rho, epsilon_of_rho, rho_nano

TOP = 1 << 128
SIGMA2 = [Fraction(1, 4), Fraction(1), Fraction(10, 3), Fraction(100), Fraction(123_457, 100)]
variances = st.fractions(Fraction(1, 10), 200, max_denominator=1000)


def bits(numbers):
    return np.frombuffer(b"".join(n.to_bytes(16, "little") for n in numbers), dtype=np.uint8).reshape(-1, 16)


def counts(noise):
    return np.diff(np.array([0, *noise.thresholds(), TOP], dtype=object))


def exact_masses(sigma2, reach, rounding):
    """Return 2^600 exp(-z² / (2 σ²)) for z = 0 .. reach, each by its own exponential at 200 digits, rounded one way."""
    context = Context(prec=200, rounding=rounding)
    step = context.next_minus if rounding == ROUND_FLOOR else context.next_plus
    other = Context(prec=200, rounding=ROUND_CEILING if rounding == ROUND_FLOOR else ROUND_FLOOR)
    whole = math.floor if rounding == ROUND_FLOOR else math.ceil
    out = []
    for z in range(reach + 1):
        exponent = other.divide(Decimal(z * z * sigma2.denominator), Decimal(2 * sigma2.numerator))
        out.append(whole(Fraction(step(context.exp(exponent.copy_negate()))) * (1 << 600)))
    return out


@pytest.mark.parametrize("sigma2", SIGMA2)
def test_thresholds_equal_an_independent_computation_at_200_digits(sigma2):
    noise = DiscreteGaussian(sigma2)
    # Three times as far as the table: what is beyond weighs less than the rounding of one mass.
    far = 3 * noise.reach + 10
    low, high = exact_masses(sigma2, far, ROUND_FLOOR), exact_masses(sigma2, far, ROUND_CEILING)
    high[far] += 1
    low_all, high_all = low[0] + 2 * sum(low[1:]), high[0] + 2 * sum(high[1:])
    floors = []
    for masses, total in ((low, high_all), (high, low_all)):
        tails = list(accumulate(reversed(masses)))[::-1]
        floors.append([TOP * tails[k] // total for k in range(1, noise.reach + 1)])
    assert floors[0] == floors[1]
    assert noise.thresholds() == floors[0][::-1] + [TOP - 1 - tail for tail in floors[0]]


@pytest.mark.parametrize("sigma2", SIGMA2)
def test_delta_bounds_the_distance_to_the_exact_distribution(sigma2):
    noise = DiscreteGaussian(sigma2)
    masses = exact_masses(sigma2, 3 * noise.reach + 10, ROUND_FLOOR)
    total = masses[0] + 2 * sum(masses[1:])
    exact = [masses[abs(z)] for z in range(-noise.reach, noise.reach + 1)]
    differences = sum(abs(int(c) * total - p * TOP) for c, p in zip(counts(noise), exact, strict=True))
    distance = (Fraction(differences, TOP * total) + Fraction(total - sum(exact), total)) / 2
    assert distance <= noise.delta < Fraction(1, 1 << 99)


@settings(max_examples=30, deadline=None)
@given(variances, st.lists(st.integers(0, TOP - 1), min_size=1, max_size=20), st.data())
def test_sampler_equals_big_integer_comparison(sigma2, numbers, data):
    noise = DiscreteGaussian(sigma2)
    table = noise.thresholds()
    picked = data.draw(st.lists(st.sampled_from(table), max_size=10))
    numbers = [*numbers, *(min(max(value + shift, 0), TOP - 1) for value in picked for shift in (-1, 0, 1)), 0, TOP - 1]
    assert noise.sample(bits(numbers)).tolist() == [bisect_right(table, n) - noise.reach for n in numbers]


@settings(max_examples=40, deadline=None)
@given(variances)
def test_table_is_symmetric_with_the_mass_ratios_of_a_gaussian(sigma2):
    body = [int(c) for c in counts(DiscreteGaussian(sigma2))[1:-1]]
    assert body == body[::-1]
    middle = len(body) // 2
    for z, (c, d) in enumerate(pairwise(body[middle:])):
        if d > 1 << 40:
            assert math.log(Fraction(c, d)) == pytest.approx((2 * z + 1) / (2 * float(sigma2)), rel=1e-9, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.fractions(Fraction(1, 2), 50, max_denominator=100), st.integers(1, 3), st.floats(1.01, 20))
def test_renyi_divergence_of_shifted_outputs_is_within_the_claim(sigma2, shift, alpha):
    noise = DiscreteGaussian(sigma2)
    z = np.arange(-noise.reach, noise.reach + 1).astype(float)
    log_p = -(z**2) / (2 * float(sigma2))
    log_q = -((z - shift) ** 2) / (2 * float(sigma2))
    norm = np.log(np.exp(log_p).sum())
    terms = alpha * (log_p - norm) + (1 - alpha) * (log_q - norm)
    divergence = (terms.max() + np.log(np.exp(terms - terms.max()).sum())) / (alpha - 1)
    assert divergence <= alpha * shift**2 / (2 * float(sigma2)) * (1 + 1e-9) + 1e-9


def test_floats_describe_the_table():
    noise = DiscreteGaussian(Fraction(50))
    z = np.arange(-noise.reach, noise.reach + 1)
    exact = np.array([float(Fraction(int(c), TOP)) for c in counts(noise)])
    np.testing.assert_allclose(noise.pmf(z), exact, rtol=1e-9, atol=1e-29)
    np.testing.assert_allclose(noise.cdf(z), np.cumsum(exact), rtol=1e-9, atol=1e-29)
    assert noise.cdf([-1e9, 0.5, 1e9]).tolist() == pytest.approx([0, float(noise.cdf(0)), 1])
    assert noise.variance == pytest.approx(50)
    assert DiscreteGaussian(Fraction(1, 4)).variance < 0.25


def test_pickles_as_its_variance():
    noise = DiscreteGaussian(Fraction(7, 3))
    assert len(pickle.dumps(noise)) < 200
    assert pickle.loads(pickle.dumps(noise)).thresholds() == noise.thresholds()


@pytest.mark.parametrize("sigma2", [Fraction(0), Fraction(-1), MIN_SIGMA2 / 2, MAX_SIGMA2 + 1])
def test_illegal_variances_are_refused(sigma2):
    with pytest.raises(ValueError, match="`sigma2`"):
        DiscreteGaussian(sigma2)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.01, 10), st.floats(1e-12, 0.1))
def test_rho_is_valid_tight_and_at_least_the_closed_form(epsilon, delta):
    rho = rho_nano(epsilon, delta) / 1e9
    assert delta_of_rho(rho, epsilon) <= delta < delta_of_rho(rho + 2e-9, epsilon) * (1 + 1e-6)
    log = math.log(1 / delta)
    assert rho >= (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2 - 1e-9
    assert epsilon_of_rho(rho, delta) <= epsilon * (1 + 1e-6)


@settings(max_examples=60)
@given(st.floats(0.001, 2), st.floats(0.1, 8))
def test_delta_of_rho_covers_the_continuous_gaussian(rho, epsilon):
    # The Gaussian mechanism's own curve (Balle, Wang 2018), at μ = √(2 ρ).
    mu = math.sqrt(2 * rho)

    def upper(x):
        return math.erfc(x / math.sqrt(2)) / 2

    exact = upper(epsilon / mu - mu / 2) - math.exp(epsilon) * upper(epsilon / mu + mu / 2)
    assert delta_of_rho(rho, epsilon) >= exact - 1e-12


def test_illegal_guarantees_are_refused():
    for bad in (0, 1, -1, float("nan")):
        with pytest.raises(ValueError, match="`delta`"):
            rho_nano(1, bad)
        with pytest.raises(ValueError, match="`delta`"):
            epsilon_of_rho(1, bad)
    for bad in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="`epsilon`"):
            rho_nano(bad, 1e-6)
    with pytest.raises(ValueError, match="`epsilon`"):
        rho_nano(1e-6, 1e-12)
    with pytest.raises(ValueError, match="`rho`"):
        delta_of_rho(-1, 1)
    assert delta_of_rho(0, 1) == 0
