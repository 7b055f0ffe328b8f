"""The bound on belief: the fixtures of Evfimievski's lectures, exact posteriors, and random channels."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geo.privacy.certificate import amplification, belief_bound

N = 1001
PRIOR = np.full(N, 0.99 / 1000)
PRIOR[0] = 0.01


def keep_or_replace() -> np.ndarray:
    """R1: keep 20 %, else another value uniformly."""
    channel = np.full((N, N), 0.8 / 1000)
    np.fill_diagonal(channel, 0.2)
    return channel


def shift() -> np.ndarray:
    """R2: add -100 .. 100 uniformly, modulo 1001."""
    channel = np.zeros((N, N))
    for step in range(-100, 101):
        channel[np.arange(N), (np.arange(N) + step) % N] += 1 / 201
    return channel


def mixture() -> np.ndarray:
    """R3: R2 half of the time, else any value uniformly."""
    return 0.5 * shift() + 0.5 / N


def posterior(channel: np.ndarray, of: np.ndarray, output: int = 0) -> float:
    weight = PRIOR * channel[:, output]
    return float(weight[of].sum() / weight.sum())


ZERO = np.arange(N) == 0
FAR = (np.arange(N) < 200) | (np.arange(N) > 800)


@pytest.mark.parametrize(
    ("channel", "gamma", "zero", "far"),
    [(keep_or_replace(), 250.0, 0.7163, 0.8295), (shift(), math.inf, 0.0481, 1.0), (mixture(), 5.98, 0.0294, 0.7077)],
    ids=["R1", "R2", "R3"],
)
def test_the_lectures_examples(channel: np.ndarray, gamma: float, zero: float, far: float) -> None:
    assert amplification(channel) == pytest.approx(gamma, rel=1e-3)
    assert posterior(channel, ZERO) == pytest.approx(zero, abs=5e-5)
    assert posterior(channel, FAR) == pytest.approx(far, abs=5e-5)
    loss = math.log(amplification(channel))
    assert posterior(channel, ZERO) <= belief_bound(0.01, loss) + 1e-12
    assert posterior(channel, FAR) <= belief_bound(float(PRIOR[FAR].sum()), loss) + 1e-12


def test_the_bound_is_reached_by_a_channel_that_has_two_likelihoods() -> None:
    assert belief_bound(0.01, math.log(250)) == pytest.approx(posterior(keep_or_replace(), ZERO), abs=1e-12)


def test_a_channel_that_excludes_an_input_has_no_certificate() -> None:
    assert belief_bound(0.405, math.log(amplification(shift()))) == 1


def test_known_values() -> None:
    assert belief_bound(0.1, math.log(4)) == pytest.approx(4 * 0.1 / (1 + 3 * 0.1))
    assert belief_bound(0.1, 0.0) == pytest.approx(0.1)
    assert belief_bound(0.0, math.inf) == 0
    assert belief_bound(1.0, -5.0) == 1
    assert belief_bound(0.1, 5000.0) == 1
    assert 0 <= belief_bound(0.1, -5000.0) < 1e-300


@given(st.floats(1e-6, 1 - 1e-6), st.floats(0, 20), st.floats(0, 20))
def test_losses_add(belief: float, one: float, other: float) -> None:
    assert belief_bound(belief_bound(belief, one), other) == pytest.approx(belief_bound(belief, one + other), rel=1e-6)


@given(st.integers(2, 5), st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_no_posterior_of_any_channel_and_prior_exceeds_the_bound(inputs: int, outputs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    channel = rng.dirichlet(np.ones(outputs), inputs)
    prior = rng.dirichlet(np.ones(inputs))
    loss = math.log(amplification(channel))
    joint = prior[:, None] * channel
    after = joint / joint.sum(axis=0)
    for x in range(inputs):
        assert after[x].max() <= belief_bound(float(prior[x]), loss) + 1e-9
        assert after[x].min() >= belief_bound(float(prior[x]), -loss) - 1e-9


@pytest.mark.parametrize("belief", [-0.1, 1.1, math.nan])
def test_what_is_no_probability_is_refused(belief: float) -> None:
    with pytest.raises(ValueError, match="probability"):
        belief_bound(belief, 1.0)


@pytest.mark.parametrize("channel", [[0.5, 0.5], [[0.5, 0.6]], [[1.5, -0.5]], np.zeros((0, 2)), [[math.nan, 1.0]]])
def test_what_is_no_channel_is_refused(channel: object) -> None:
    with pytest.raises(ValueError, match="channel"):
        amplification(channel)  # type: ignore[arg-type]
