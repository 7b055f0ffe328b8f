"""Each node's noise follows its claimed distribution, and an audit finds no loss above the claim but finds one in broken variants."""

import math
import os
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from geo.privacy.budgets import level_budgets, node_budgets
from geo.privacy.discrete_gaussian import DiscreteGaussian
from geo.privacy.discrete_laplace import WideDiscreteLaplace
from geo.privacy.tree_counts import TreeCounts
from geo.privacy.zcdp import delta_of_rho
from tests.geo.trees import regular, with_elsewhere
from tests.statistical.test_window_mean import p_value

pytestmark = pytest.mark.statistical

SECRET = b"a secret for tests, 32 bytes ..."
DRAWS = min(int(os.environ.get("WAYVEIL_TEST_DRAWS", "5000")), 100_000)
RUNS = min(int(os.environ.get("WAYVEIL_TEST_DRAWS", "16000")), 100_000)
"""Of an audit, on each of two neighbours."""

ACCEPT_P = 1e-5
REJECT_P = 1e-9
WRONG_SCALES = (0.7, 1.3)
CORRELATION_LIMIT = 5.5 / np.sqrt(DRAWS)
CONFIDENCE = 1 - 1e-4
EPSILON_MICRO = 1_000_000
RHO_NANO = 500_000_000
TREE = with_elsewhere(2, 2)
COUNTS = np.array([3, 40, 0, 7, 1])
MOVED = {"add-remove": np.array([3, 41, 0, 7, 1]), "replace-one": np.array([3, 41, 0, 6, 1])}
AUDITED = regular(2, 2)
BEFORE = np.array([40, 3, 7, 1])
AFTER = {"add-remove": np.array([41, 3, 7, 1]), "replace-one": np.array([41, 3, 6, 1])}
CASES = [(noise, neighbours) for noise in ("discrete-laplace", "discrete-gaussian") for neighbours in ("add-remove", "replace-one")]


def budgets(total, neighbours):
    return node_budgets(TREE, level_budgets(TREE, total, exact_root=neighbours == "replace-one"))


def mechanism(noise, neighbours, total):
    return TreeCounts(TREE, budgets(total, neighbours), neighbours, noise)


def audited(noise, neighbours, total=None):
    total = total or (EPSILON_MICRO if noise == "discrete-laplace" else RHO_NANO)
    exact_root = neighbours == "replace-one"
    equal = np.full(len(AUDITED), total // (len(AUDITED.levels) - exact_root))
    equal[0] *= not exact_root
    return TreeCounts(AUDITED, equal, neighbours, noise)


def releases(made, leaf_counts, runs):
    return np.stack([made.release(SECRET, tick, leaf_counts) for tick in range(runs)])


@pytest.fixture(scope="module", params=CASES, ids="/".join)
def drawn(request):
    # Small budgets: the distributions of the levels are wide and differ.
    made = mechanism(*request.param, total=300_000 if request.param[0] == "discrete-laplace" else 30_000_000)
    return made, releases(made, COUNTS, DRAWS) - TREE.sums(COUNTS)


def claimed(made, node, factor=1.0):
    """Return the distribution that the docstring claims for a node, by its formula, with its scale times a factor."""
    paths = 1 if made.neighbours == "add-remove" else 2
    budget = int(made.budgets[node])
    if made.noise == "discrete-laplace":
        return WideDiscreteLaplace(Decimal(budget) / 10**6 / paths / Decimal(str(factor)))
    return DiscreteGaussian(Fraction(10**9 * paths, 2 * budget) * Fraction(str(factor)) ** 2)


def test_each_node_follows_its_claimed_distribution_and_not_one_30_percent_off(drawn):
    made, noise = drawn
    for node in np.flatnonzero(made.budgets):
        assert p_value(noise[:, node], claimed(made, node)) > ACCEPT_P
        for factor in WRONG_SCALES:
            assert p_value(noise[:, node], claimed(made, node, factor)) < REJECT_P


def test_stated_variances_are_those_of_the_draws(drawn):
    made, noise = drawn
    measured = made.budgets > 0
    np.testing.assert_allclose(noise[:, measured].var(axis=0), made.variance[measured], rtol=12 / np.sqrt(DRAWS))
    assert not noise[:, ~measured].any() or made.neighbours == "replace-one"


def test_nodes_are_uncorrelated(drawn):
    made, noise = drawn
    for values in (noise[:, made.budgets > 0], np.abs(noise[:, made.budgets > 0])):
        assert np.abs(np.corrcoef(values.T) - np.eye(values.shape[1])).max() < CORRELATION_LIMIT


def test_noise_before_and_after_one_user_moved_is_independent(drawn):
    made, noise = drawn
    moved = MOVED[made.neighbours]
    after = releases(made, moved, DRAWS) - TREE.sums(moved)
    for node in np.flatnonzero(made.budgets):
        assert abs(np.corrcoef(noise[:, node], after[:, node])[0, 1]) < CORRELATION_LIMIT


def bound(hits, runs, side):
    """Clopper–Pearson bound of a probability."""
    tail = (1 - CONFIDENCE) / 2
    if side == "lower":
        return 0.0 if hits == 0 else float(stats.beta.ppf(tail, hits, runs - hits + 1))
    return 1.0 if hits == runs else float(stats.beta.ppf(1 - tail, hits + 1, runs - hits))


def audited_epsilon(one, other):
    """Return the ε that is certainly lost, given how often an event happened on each of two neighbours."""
    lower, upper = bound(int(one.sum()), len(one), "lower"), bound(int(other.sum()), len(other), "upper")
    return max(0.0, math.log(lower / upper)) if lower else 0.0


def likely_event(noisy, neighbours):
    """Return where every changed node is on the side of the neighbour: the event with the largest ratio of probabilities."""
    before, after = AUDITED.sums(BEFORE), AUDITED.sums(AFTER[neighbours])
    up, down = after > before, after < before
    return (noisy[:, up] >= after[up]).all(axis=1) & (noisy[:, down] <= after[down]).all(axis=1)


def audit(made):
    one = likely_event(releases(made, AFTER[made.neighbours], RUNS), made.neighbours)
    other = likely_event(releases(made, BEFORE, RUNS), made.neighbours)
    return audited_epsilon(one, other)


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_audit_finds_no_loss_above_the_claim_and_most_of_it(neighbours):
    found = audit(audited("discrete-laplace", neighbours))
    assert 0.7 < found <= EPSILON_MICRO / 1e6


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_audit_finds_noise_that_is_30_percent_too_small(neighbours):
    broken = audited("discrete-laplace", neighbours, int(EPSILON_MICRO / 0.7))
    assert audit(broken) > EPSILON_MICRO / 1e6


def audited_delta(made, epsilon):
    """Return the δ that is certainly needed at an ε, from the event that the log-likelihood ratio exceeds it."""
    before, after = AUDITED.sums(BEFORE), AUDITED.sums(AFTER[made.neighbours])
    sigma2 = np.where(made.budgets > 0, made.variance, np.inf)

    def event(noisy):
        ratio = ((noisy - before) ** 2 - (noisy - after) ** 2) / (2 * sigma2)
        return ratio.sum(axis=1) > epsilon

    one, other = event(releases(made, after[AUDITED.leaves], RUNS)), event(releases(made, before[AUDITED.leaves], RUNS))
    return bound(int(one.sum()), RUNS, "lower") - math.exp(epsilon) * bound(int(other.sum()), RUNS, "upper")


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_audit_of_gaussian_noise_finds_no_delta_above_the_claim_but_does_for_small_noise(neighbours):
    epsilon = 2.0
    allowed = delta_of_rho(RHO_NANO / 1e9, epsilon)
    assert audited_delta(audited("discrete-gaussian", neighbours), epsilon) <= allowed
    assert audited_delta(audited("discrete-gaussian", neighbours, int(RHO_NANO / 0.49)), epsilon) > allowed


def data_built(users, tick):
    """Forbidden variant: a tree whose boxes fit the users, as an R-tree of the data has them, with noisy counts."""
    west, east = np.array_split(np.sort(users), 2)
    boxes = np.array([west[0], west[-1], east[0], east[-1]])
    counts = np.array([((users >= west[0]) & (users <= west[-1])).sum(), (users >= east[0]).sum(), 0, 0])
    return boxes, audited("discrete-laplace", "add-remove").release(SECRET, tick, counts)


def test_the_audit_finds_the_leak_of_a_tree_built_from_the_data():
    users = np.array([3.0, 4.5, 9.0, 20.0, 21.5])
    runs = 200
    with_last = np.array([data_built(users, tick)[0][-1] == users[-1] for tick in range(runs)])
    without = np.array([data_built(users[:-1], tick)[0][-1] == users[-1] for tick in range(runs)])
    assert audited_epsilon(with_last, without) > 2 * EPSILON_MICRO / 1e6
