import time
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from geo.privacy.budgets import level_budgets, node_budgets
from geo.privacy.consistency import estimate
from geo.privacy.discrete_laplace import WideDiscreteLaplace
from geo.privacy.prf import stream, subkey
from geo.privacy.tree_counts import MAX_USERS, TreeCounts
from geo.tree import Tree
from tests.geo.trees import regular, trees, with_elsewhere

SECRET = b"a secret for tests, 32 bytes ..."
TICK_S = 0.01
seeds = st.integers(0, 2**32 - 1)
relations = st.sampled_from(["add-remove", "replace-one"])
noises = st.sampled_from(["discrete-laplace", "discrete-gaussian"])


def mechanism(tree, total=10**6, neighbours="replace-one", noise="discrete-laplace", version=b""):
    levels = level_budgets(tree, total, exact_root=neighbours == "replace-one")
    return TreeCounts(tree, node_budgets(tree, levels), neighbours, noise, version)


def counts(tree, seed=1):
    return np.random.default_rng(seed).integers(0, 50, len(tree.leaves))


def moves(tree, neighbours, leaf_counts):
    """Return all leaf counts that differ by one user."""
    unit = np.eye(len(tree.leaves), dtype=np.int64)
    if neighbours == "add-remove":
        found = [leaf_counts + sign * row for row in unit for sign in (-1, 1)]
    else:
        found = [leaf_counts - a + b for a, b in product(unit, unit) if (a != b).any()]
    return [moved for moved in found if (moved >= 0).all()]


def losses(made, changed):
    """Return the loss of nodes that change by `changed`, from the distributions that the mechanism draws from, exactly."""
    total = Fraction(0)
    for rows, noise in made._groups:
        for node in made._measured[rows]:
            shift = abs(int(changed[node]))
            if made.noise == "discrete-laplace":
                total += Fraction(noise.exponent) * shift
            else:
                total += Fraction(shift**2) / (2 * noise.sigma2)
    return total


@settings(max_examples=30, deadline=None)
@given(trees(14), seeds, relations, noises, st.integers(1000, 10**7))
def test_one_user_added_removed_or_moved_costs_at_most_the_loss_claimed(tree, seed, neighbours, noise, total):
    assume(neighbours == "add-remove" or len(tree) > 1)
    made = mechanism(tree, total, neighbours, noise)
    units = 10**6 if noise == "discrete-laplace" else 10**9
    assert made.loss == total
    leaf_counts = np.random.default_rng(seed).integers(0, 3, len(tree.leaves))
    before = tree.sums(leaf_counts)
    for moved in moves(tree, neighbours, leaf_counts):
        changed = tree.sums(moved) - before
        assert set(np.abs(changed).tolist()) <= {0, 1}
        for part in tree.levels:
            assert np.abs(changed[part]).sum() <= (1 if neighbours == "add-remove" else 2)
        assert losses(made, changed) <= Fraction(total, units)
        # What is published exactly does not change.
        assert not changed[made.variance == 0].any()


def test_the_claim_is_met_by_some_neighbours():
    tree = regular(2, 3)
    for neighbours, noise in product(("add-remove", "replace-one"), ("discrete-laplace", "discrete-gaussian")):
        made = mechanism(tree, 10**6, neighbours, noise)
        leaf_counts = np.ones(6, np.int64)
        worst = max(losses(made, tree.sums(moved) - tree.sums(leaf_counts)) for moved in moves(tree, neighbours, leaf_counts))
        assert worst == Fraction(1 if noise == "discrete-laplace" else Fraction(1, 1000))


@settings(max_examples=20, deadline=None)
@given(trees(), seeds, noises)
def test_the_same_input_gives_the_same_noise_within_its_reach(tree, seed, noise):
    made = mechanism(tree, 500_000, "add-remove", noise)
    leaf_counts = counts(tree, seed)
    noisy = made.release(SECRET, 7, leaf_counts)
    again = mechanism(tree, 500_000, "add-remove", noise).release(SECRET, 7, leaf_counts.copy())
    np.testing.assert_array_equal(noisy, again)
    reach = np.zeros(len(tree), np.int64)
    for rows, distribution in made._groups:
        reach[made._measured[rows]] = distribution.reach
    assert (np.abs(noisy - tree.sums(leaf_counts)) <= reach).all()


@pytest.mark.parametrize("noise", ["discrete-laplace", "discrete-gaussian"])
def test_every_part_of_the_key_redraws_the_noise_of_all_nodes(noise):
    tree = regular(20, 20)
    leaf_counts = counts(tree)
    moved = leaf_counts.copy()
    moved[[3, 200]] += [1, -1]
    base = mechanism(tree, 10**5, noise=noise)
    usual = base.release(SECRET, 5, leaf_counts, b"c") - tree.sums(leaf_counts)
    others = {
        "secret": base.release(SECRET[::-1], 5, leaf_counts, b"c") - tree.sums(leaf_counts),
        "tick": base.release(SECRET, 6, leaf_counts, b"c") - tree.sums(leaf_counts),
        "negative tick": base.release(SECRET, -5, leaf_counts, b"c") - tree.sums(leaf_counts),
        "context": base.release(SECRET, 5, leaf_counts, b"d") - tree.sums(leaf_counts),
        "one user": base.release(SECRET, 5, moved, b"c") - tree.sums(moved),
        "version": mechanism(tree, 10**5, noise=noise, version=b"2").release(SECRET, 5, leaf_counts, b"c") - tree.sums(leaf_counts),
        "budget": mechanism(tree, 10**5 + 1, noise=noise).release(SECRET, 5, leaf_counts, b"c") - tree.sums(leaf_counts),
    }
    for what, other in others.items():
        # Independent noise of this width agrees by chance in a few of 420 nodes.
        assert (other[1:] == usual[1:]).mean() < 0.05, what
        assert abs(np.corrcoef(other[1:], usual[1:])[0, 1]) < 0.25, what


def own_count_release(tree, budgets, tick, leaf_counts):
    """Forbidden variant: the noise of a node is keyed by its own count only."""
    out = []
    for node, count in enumerate(tree.sums(leaf_counts).tolist()):
        key = subkey(SECRET, b"own", repr((tick, node, count)).encode())
        noise = WideDiscreteLaplace(TreeCounts(tree, budgets, "add-remove")._groups[0][1].exponent)
        out.append(count + int(noise.sample(stream(key, 32).reshape(1, 32))[0]))
    return np.array(out)


def test_a_key_per_nodes_own_count_shows_which_leaf_changed_and_ours_does_not():
    tree = regular(4, 5)
    budgets = np.full(len(tree), 30_000)
    leaf_counts = counts(tree)
    moved = leaf_counts.copy()
    moved[13] += 1
    path = np.flatnonzero(tree.sums(moved) != tree.sums(leaf_counts))
    leak = np.flatnonzero(own_count_release(tree, budgets, 1, moved) != own_count_release(tree, budgets, 1, leaf_counts))
    assert set(leak.tolist()) <= set(path.tolist())
    assert tree.leaves[13] in leak
    made = TreeCounts(tree, budgets, "add-remove")
    changed = np.flatnonzero(made.release(SECRET, 1, moved) != made.release(SECRET, 1, leaf_counts))
    assert len(changed) > 0.9 * len(tree)


def test_replace_one_publishes_the_total_exactly_and_doubles_the_noise():
    tree = with_elsewhere(5, 4)
    leaf_counts = counts(tree)
    made = mechanism(tree)
    noisy = made.release(SECRET, 1, leaf_counts)
    assert noisy[0] == leaf_counts.sum()
    assert made.variance[0] == 0
    assert estimate(tree, noisy, made.variance).count[0] == leaf_counts.sum()
    budgets = np.full(len(tree), 10_000)
    budgets[0] = 0
    one, two = (TreeCounts(tree, budgets, relation) for relation in ("add-remove", "replace-one"))
    assert np.isinf(one.variance[0])
    assert two.variance[1] == pytest.approx(4 * one.variance[1], rel=0.01)


def test_an_unmeasured_level_is_published_as_zero_with_infinite_variance():
    tree = regular(3, 3)
    budgets = node_budgets(tree, level_budgets(tree, 10**6, workload=[0, 0, 1]))
    made = TreeCounts(tree, budgets, "add-remove")
    noisy = made.release(SECRET, 1, counts(tree))
    assert not noisy[:4].any()
    assert np.isinf(made.variance[:4]).all()
    assert np.isfinite(estimate(tree, noisy, made.variance).standard_error).all()


def test_delta_is_the_sum_over_the_nodes_and_negligible():
    tree = regular(16, 16, 15)
    made = mechanism(tree, 1000)
    assert made.delta == sum(len(rows) * noise.delta for rows, noise in made._groups)
    assert made.delta < Fraction(1, 1 << 80)


def test_illegal_budgets_and_names_are_refused():
    tree = regular(2)
    for budgets in ([1, 1], [1, 1, -1], [0, 0, 0], [1.0, 1.0, 1.0], [1 << 60, 1, 1], [float("nan")] * 3):
        with pytest.raises(ValueError, match="`budgets`"):
            TreeCounts(tree, np.array(budgets), "add-remove")
    with pytest.raises(ValueError, match="`budgets`"):
        TreeCounts(tree, np.array([1, 1, 1]), "replace-one")
    with pytest.raises(ValueError, match="`budgets` should not hold 200000000"):
        TreeCounts(tree, np.array([0, 200_000_000, 200_000_000]), "add-remove")
    with pytest.raises(ValueError, match="`budgets` should not hold 3"):
        TreeCounts(tree, np.array([0, 3, 3]), "add-remove", "discrete-gaussian")
    with pytest.raises(ValueError, match="`neighbours`"):
        TreeCounts(tree, np.array([1, 1, 1]), "anything")
    with pytest.raises(ValueError, match="`noise`"):
        TreeCounts(tree, np.array([1, 1, 1]), "add-remove", "laplace")


def test_illegal_counts_are_refused_and_the_largest_legal_ones_are_exact():
    tree = Tree(np.array([-1, 0, 0]))
    made = TreeCounts(tree, np.array([0, 1, 1]), "replace-one")
    for bad in ([1], [1, -1], [MAX_USERS, 2], [2**62, 2**62]):
        with pytest.raises(ValueError, match="`leaf_counts`"):
            made.release(SECRET, 1, np.array(bad))
    with pytest.raises(ValueError, match="`leaf_counts`"):
        made.release(SECRET, 1, np.array([1.0, 2.0]))
    noisy = made.release(SECRET, 1, np.array([MAX_USERS - 5, 5]))
    assert noisy[0] == MAX_USERS
    count = estimate(tree, noisy, made.variance).count
    assert count[0] == count[1] + count[2] == MAX_USERS
    assert (np.abs(noisy) < 1 << 53).all()
    with pytest.raises(ValueError, match="`secret`"):
        made.release(b"short", 1, np.array([1, 1]))


def test_noise_and_estimate_of_four_thousand_nodes_take_less_than_ten_milliseconds():
    tree = regular(16, 16, 15)
    made, leaf_counts = mechanism(tree, 100_000), counts(tree)
    estimate(tree, made.release(SECRET, 0, leaf_counts), made.variance)
    start = time.process_time()
    for tick in range(10):
        estimate(tree, made.release(SECRET, tick, leaf_counts), made.variance)
    assert (time.process_time() - start) / 10 < TICK_S
