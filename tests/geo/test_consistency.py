import time

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear, minimize

from geo.privacy.consistency import estimate, least_squares, nonnegative, variance_of_sum, whole
from geo.tree import Tree
from tests.geo.trees import regular, trees, with_elsewhere

TICK_S = 0.01
seeds = st.integers(0, 2**32 - 1)


def membership(tree):
    """Return the matrix that sums leaves to nodes."""
    return np.stack([tree.sums(unit) for unit in np.eye(len(tree.leaves), dtype=np.int64)], axis=1).astype(float)


def dense(tree, noisy, variance):
    """Return generalised least squares on the leaves, exact rows as constraints (null space method), and the error variances."""
    a = membership(tree)
    exact, measured = variance == 0, np.isfinite(variance) & (variance > 0)
    particular, basis = np.zeros(a.shape[1]), np.eye(a.shape[1])
    if exact.any():
        u, s, vt = np.linalg.svd(a[exact])
        rank = int((s > 1e-10).sum())
        particular = vt[:rank].T @ ((u[:, :rank].T @ noisy[exact]) / s[:rank])
        basis = vt[rank:].T
    weight = 1 / np.sqrt(variance[measured])
    design = weight[:, None] * (a[measured] @ basis)
    if np.linalg.matrix_rank(design, tol=1e-9) < basis.shape[1]:
        return None
    q, r = np.linalg.qr(design)
    free = np.linalg.solve(r, q.T @ (weight * (noisy[measured] - a[measured] @ particular)))
    spread = a @ basis @ np.linalg.inv(r)
    return a @ (particular + basis @ free), (spread**2).sum(axis=1)


def measurements(tree, seed, unmeasured=0.0, exact_root=False):
    rng = np.random.default_rng(seed)
    counts = tree.sums(rng.poisson(rng.lognormal(1, 1.5, len(tree.leaves))).astype(np.int64))
    variance = rng.lognormal(2, 1.5, len(tree))
    variance[rng.random(len(tree)) < unmeasured] = np.inf
    if exact_root:
        variance[0] = 0.0
    noise = rng.normal(0, 1, len(tree)) * np.sqrt(np.where(np.isinf(variance), 0, variance))
    return counts, counts + noise, variance


def add_up(tree, values):
    return np.array([values[tree.parent == node].sum() if tree.children[node] else values[node] for node in range(len(tree))])


@settings(max_examples=100, deadline=None)
@given(trees(), seeds, st.sampled_from([0.0, 0.3]), st.booleans())
def test_two_passes_equal_dense_generalised_least_squares_with_its_variances(tree, seed, unmeasured, exact_root):
    _, noisy, variance = measurements(tree, seed, unmeasured, exact_root)
    expected = dense(tree, noisy, variance)
    assume(expected is not None)
    result = least_squares(tree, noisy, variance)
    scale = 1 + np.abs(noisy).max()
    np.testing.assert_allclose(result.value, expected[0], rtol=0, atol=1e-9 * scale)
    np.testing.assert_allclose(result.variance, expected[1], rtol=1e-7, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(trees(), seeds)
def test_exact_inner_nodes_are_kept_and_the_rest_is_still_least_squares(tree, seed):
    counts, noisy, variance = measurements(tree, seed)
    exact = (tree.level <= 1) & (tree.children > 0)
    variance[exact], noisy[exact] = 0.0, counts[exact]
    result = least_squares(tree, noisy, variance)
    expected = dense(tree, noisy, variance)
    np.testing.assert_allclose(result.value, expected[0], rtol=0, atol=1e-8 * (1 + np.abs(noisy).max()))
    np.testing.assert_allclose(result.variance, expected[1], rtol=1e-7, atol=1e-8)
    np.testing.assert_array_equal(result.value[0], counts[0] if exact[0] else result.value[0])


def test_hays_weights_are_the_special_case_of_equal_variances():
    tree = regular(2, 2)
    noisy = np.array([10.0, 3.0, 6.0, 1.0, 4.0, 2.0, 2.0])
    # z of a node of height 2 with fan-out 2 is 2/3 of its own count and 1/3 of its children's sum (Hay et al. 2010, equation of z).
    z = [2 / 3 * 3 + 1 / 3 * 5, 2 / 3 * 6 + 1 / 3 * 4]
    root = 4 / 7 * 10 + 3 / 7 * sum(z)
    assert least_squares(tree, noisy, np.ones(7)).value[:3] == pytest.approx([root, z[0] + (root - sum(z)) / 2, z[1] + (root - sum(z)) / 2])


def test_unmeasured_siblings_share_what_is_left_and_say_that_nothing_is_known():
    tree = Tree(np.array([-1, 0, 0, 0]))
    result = least_squares(tree, np.array([12.0, 4.0, np.nan, 7.0]), np.array([0.0, 2.0, np.inf, np.inf]))
    assert result.value == pytest.approx([12, 4, 4, 4])
    assert result.variance.tolist() == [0, 2, np.inf, np.inf]
    one = least_squares(tree, np.array([12.0, 4.0, 5.0, 7.0]), np.array([3.0, 2.0, 1.0, np.inf]))
    assert one.value == pytest.approx([12, 4, 5, 3])
    assert one.variance == pytest.approx([3, 2, 1, 6])


@settings(max_examples=100, deadline=None)
@given(trees(), seeds, st.sampled_from([0.0, 0.3]), st.booleans())
def test_estimates_are_whole_not_negative_and_add_up_at_every_node(tree, seed, unmeasured, exact_root):
    counts, noisy, variance = measurements(tree, seed, unmeasured, exact_root)
    noisy = np.where(np.arange(len(tree)) > 0, noisy - 5, noisy)
    result = estimate(tree, noisy, variance)
    assert result.count.dtype == np.int64
    assert (result.count >= 0).all()
    np.testing.assert_array_equal(add_up(tree, result.count), result.count)
    if exact_root:
        assert result.count[0] == counts[0]
    assert len(result.standard_error) == len(tree)
    assert not np.isnan(result.standard_error).any()
    np.testing.assert_allclose(add_up(tree, result.unbiased), result.unbiased, atol=1e-8 * (1 + np.abs(noisy).max()))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7), seeds)
def test_projection_of_siblings_equals_a_quadratic_program(fan, seed):
    tree = Tree(np.array([-1] + [0] * fan))
    rng = np.random.default_rng(seed)
    s = np.concatenate([[1.0], rng.lognormal(1, 1, fan)])
    leaf = rng.normal(1, 5, fan)
    value = np.concatenate([[leaf.sum()], leaf])
    out = nonnegative(tree, value, s)
    total = max(value[0], 0.0)
    assert out[0] == total
    assert out[1:].sum() == pytest.approx(total, abs=1e-9)
    assert (out >= 0).all()

    def cost(x):
        return float(np.sum((x - leaf) ** 2 / s[1:]))

    start = np.full(fan, total / fan)
    solver = minimize(
        cost,
        start,
        jac=lambda x: 2 * (x - leaf) / s[1:],
        bounds=[(0, None)] * fan,
        constraints={"type": "eq", "fun": lambda x: x.sum() - total, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert cost(out[1:]) <= cost(np.maximum(solver.x, 0)) + 1e-6 * (1 + cost(out[1:]))
    if total > 0:
        # A heavy penalty on the sum turns the programme into bounded least squares, solved by another method.
        weight = 1e4
        design = np.vstack([np.diag(1 / np.sqrt(s[1:])), np.full(fan, weight)])
        other = lsq_linear(design, np.concatenate([leaf / np.sqrt(s[1:]), [weight * total]]), bounds=(0, np.inf), method="bvls", tol=1e-14)
        np.testing.assert_allclose(out[1:], other.x, atol=1e-5 * (1 + np.abs(leaf).max()))


@settings(max_examples=80, deadline=None)
@given(trees(), seeds)
def test_nonnegative_is_the_identity_where_nothing_is_negative(tree, seed):
    counts, _, variance = measurements(tree, seed)
    np.testing.assert_allclose(nonnegative(tree, counts.astype(float), variance), counts, rtol=1e-12, atol=1e-9)


def test_exact_children_keep_their_value_under_a_noisy_parent():
    tree = Tree(np.array([-1, 0, 0, 0]))
    noisy, variance = np.array([3.0, 8.0, -5.0, 2.0]), np.array([1.0, 0.0, 1.0, 1.0])
    result = estimate(tree, noisy, variance)
    assert result.count[1] == 8
    assert result.count[0] == result.count[1:].sum()
    assert result.standard_error[1] == 0


@settings(max_examples=100, deadline=None)
@given(trees(), seeds, st.sampled_from([0.3, 1.0, 1e3, 1e9]))
def test_whole_moves_each_value_by_less_than_one_and_adds_up(tree, seed, scale):
    rng = np.random.default_rng(seed)
    value = np.zeros(len(tree))
    value[tree.leaves] = rng.exponential(scale, len(tree.leaves)) * (rng.random(len(tree.leaves)) < 0.7)
    for part in reversed(tree.levels[1:]):
        np.add.at(value, tree.parent[part], value[part])
    out = whole(tree, value)
    np.testing.assert_array_equal(add_up(tree, out), out)
    assert (out >= 0).all()
    assert (np.abs(out - value) < 1 + 1e-9 * (1 + value[0])).all()


def test_largest_fractions_get_the_units_and_ties_go_to_the_lowest_node():
    assert whole(Tree(np.array([-1, 0, 0, 0])), np.array([4.2, 0.9, 1.7, 1.6])).tolist() == [4, 1, 2, 1]
    assert whole(Tree(np.array([-1, 0, 0, 0, 0])), np.array([2.0, 0.5, 0.5, 0.5, 0.5])).tolist() == [2, 1, 1, 0, 0]
    assert whole(Tree(np.array([-1, 0, 0])), np.array([2.5, 0.5, 2.0])).tolist() == [3, 1, 2]


@pytest.mark.parametrize("error", [1e-13, -1e-13, 1e-12])
def test_rounding_errors_around_whole_numbers_do_not_break_the_sums(error):
    tree = regular(3, 3)
    value = tree.sums(np.arange(9)).astype(float)
    value[4:] += error * np.array([1, -1, 1, 1, 1, 1, -1, -1, -1])
    value[1:4] -= error
    out = whole(tree, np.maximum(value, 0))
    np.testing.assert_array_equal(add_up(tree, out), out)


def test_an_empty_tick_with_a_public_total_is_all_zeros():
    tree = with_elsewhere(4, 4)
    rng = np.random.default_rng(1)
    noisy, variance = rng.normal(0, 30, len(tree)), np.full(len(tree), 900.0)
    noisy[0], variance[0] = 0.0, 0.0
    assert not estimate(tree, noisy, variance).count.any()


def test_a_root_without_children_is_rounded_and_not_negative():
    tree = Tree(np.array([-1]))
    assert estimate(tree, np.array([-3]), np.array([2.0])).count.tolist() == [0]
    assert estimate(tree, np.array([7]), np.array([2.0])).count.tolist() == [7]


def test_contradictions_and_bad_numbers_are_refused():
    tree = Tree(np.array([-1, 0, 0]))
    with pytest.raises(ValueError, match="add up"):
        least_squares(tree, np.array([5.0, 1.0, 1.0]), np.zeros(3))
    with pytest.raises(ValueError, match="exceed"):
        estimate(tree, np.array([5.0, 7.0, 1.0]), np.array([0.0, 0.0, 1.0]))
    with pytest.raises(ValueError, match="negative exact"):
        estimate(tree, np.array([5.0, -1.0, 1.0]), np.array([1.0, 0.0, 1.0]))
    for variance in (np.array([1.0, -1.0, 1.0]), np.array([1.0, np.nan, 1.0])):
        with pytest.raises(ValueError, match="`variance`"):
            least_squares(tree, np.zeros(3), variance)
    with pytest.raises(ValueError, match="`noisy`"):
        least_squares(tree, np.array([1.0, np.nan, 1.0]), np.ones(3))
    with pytest.raises(ValueError, match="one value per node"):
        least_squares(tree, np.zeros(2), np.ones(2))
    with pytest.raises(ValueError, match="`value`"):
        whole(tree, np.array([1.0, -1.0, 2.0]))


def test_four_thousand_nodes_take_less_than_ten_milliseconds():
    tree = regular(16, 16, 15)
    _, noisy, variance = measurements(tree, 3, exact_root=True)
    noisy[0] = np.rint(noisy[0])
    estimate(tree, noisy, variance)
    start = time.process_time()
    for _ in range(10):
        estimate(tree, noisy, variance)
    assert (time.process_time() - start) / 10 < TICK_S


@settings(max_examples=60, deadline=None)
@given(trees(), seeds, st.sampled_from([0.0, 0.3]), st.booleans())
def test_variance_of_a_sum_equals_that_of_dense_least_squares(tree, seed, unmeasured, exact_root):
    _, noisy, variance = measurements(tree, seed, unmeasured, exact_root)
    assume(dense(tree, noisy, variance) is not None)
    weights = np.random.default_rng(seed).normal(0, 1, len(tree)) * (np.random.default_rng(seed + 1).random(len(tree)) < 0.5)
    # The estimates are linear in the measurements: their covariance is G diag(variance) G'.
    known = np.where(np.isfinite(variance), variance, 0.0)
    gain = np.stack([weights @ (least_squares(tree, unit, variance).value) for unit in np.eye(len(tree)) * (known > 0)])
    expected = float((gain**2 * known).sum())
    assert variance_of_sum(tree, variance, weights) == pytest.approx(expected, rel=1e-7, abs=1e-9)
