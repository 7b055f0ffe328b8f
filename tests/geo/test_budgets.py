import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.privacy.budgets import boundary_nodes, epsilon_micro, level_budgets, node_budgets, path_sums
from geo.tree import Tree
from tests.geo.trees import regular, trees, with_elsewhere

rules = st.sampled_from(["cube-root", "square-root", "uniform"])


@settings(max_examples=200)
@given(trees(), st.integers(1, 10**9), rules, st.data())
def test_levels_and_all_paths_spend_exactly_the_total(tree, total, rule, data):
    levels = len(tree.levels)
    workload = data.draw(st.none() | st.lists(st.floats(0, 1e6), min_size=levels, max_size=levels).filter(any))
    parts = level_budgets(tree, total, rule, workload)
    assert parts.dtype == np.int64
    assert parts.sum() == total
    assert (parts >= 0).all()
    nodes = node_budgets(tree, parts)
    assert set(path_sums(tree, nodes)[tree.leaves].tolist()) == {total}
    if workload is not None:
        assert all(part == 0 for part, used in zip(parts, workload, strict=True) if used == 0)


def test_a_public_total_leaves_nothing_to_the_root():
    tree = with_elsewhere(4, 4)
    parts = level_budgets(tree, 1000, exact_root=True)
    assert parts[0] == 0
    assert parts.sum() == 1000
    assert path_sums(tree, node_budgets(tree, parts))[tree.leaves].tolist() == [1000] * len(tree.leaves)


def test_the_leaf_under_the_root_gets_the_rest_of_its_path():
    tree = with_elsewhere(3, 2, 2)
    elsewhere = 4
    assert tree.children[elsewhere] == 0
    assert node_budgets(tree, np.array([5, 10, 20, 40]))[[0, 1, elsewhere, 5, 11]].tolist() == [5, 10, 70, 20, 40]


def test_a_quadtree_gets_the_geometric_budgets_of_cormode():
    tree = regular(4, 4, 4)
    h, total = 3, 10**9
    # ε of level i counted from the leaves: 2^((h - i) / 3) (2^(1/3) - 1) / (2^((h + 1) / 3) - 1).
    published = [2 ** ((h - i) / 3) * (2 ** (1 / 3) - 1) / (2 ** ((h + 1) / 3) - 1) * total for i in (3, 2, 1, 0)]
    np.testing.assert_allclose(level_budgets(tree, total), published, atol=1)


@settings(max_examples=100)
@given(st.lists(st.floats(0.1, 1000), min_size=3, max_size=3), st.lists(st.floats(0.01, 1), min_size=3, max_size=3))
def test_the_rules_are_best_for_their_workload(workload, other):
    tree, total = regular(2, 2), 10**9
    n = np.array(workload)
    rival = np.array(other) / sum(other) * total
    laplace = level_budgets(tree, total, "cube-root", workload)
    gauss = level_budgets(tree, total, "square-root", workload)
    assert np.sum(n / laplace.astype(float) ** 2) <= np.sum(n / rival**2) * (1 + 1e-6)
    assert np.sum(n / gauss) <= np.sum(n / rival) * (1 + 1e-6)


def test_uniform_gives_equal_parts_and_the_rest_to_the_upper_levels():
    assert level_budgets(regular(2, 2), 11, "uniform").tolist() == [4, 4, 3]
    assert boundary_nodes(regular(4, 4)) == [1, 2, 4]


@pytest.mark.parametrize(("epsilon", "micro"), [(0.1, 100_000), (0.29, 290_000), (1, 1_000_000), (1e-6, 1), (0.3, 300_000)])
def test_epsilon_is_read_as_it_is_written(epsilon, micro):
    assert epsilon_micro(epsilon) == micro


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), 9e-7])
def test_illegal_epsilon_is_refused(epsilon):
    with pytest.raises(ValueError, match="`epsilon`"):
        epsilon_micro(epsilon)


def test_illegal_arguments_are_refused():
    tree = regular(2, 2)
    for total in (0, -5, 1.5, float("nan"), (1 << 53) + 1):
        with pytest.raises(ValueError, match="`total`"):
            level_budgets(tree, total)
    with pytest.raises(ValueError, match="`rule`"):
        level_budgets(tree, 10, "cubic")
    for workload in ([1, 1], [1, -1, 1], [1, float("nan"), 1], [0, 0, 0]):
        with pytest.raises(ValueError, match="`workload`"):
            level_budgets(tree, 10, workload=workload)
    with pytest.raises(ValueError, match="`workload`"):
        level_budgets(Tree(np.array([-1])), 10, exact_root=True)
    with pytest.raises(ValueError, match="`levels`"):
        node_budgets(tree, np.array([1, -1, 1]))
