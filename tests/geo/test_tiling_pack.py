"""Packing and locating: disjoint boxes that cover the lattice, evenly weighted, and one leaf for every point."""

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.tiling.locate import Locator
from geo.tiling.pack import MAX_LEAVES, pack, shape_for

RATE_PER_S = 2_000_000
EVEN = 1.6
"""Heaviest leaf of smooth weights, as a multiple of the mean: cuts only fall on lattice lines."""


@st.composite
def lattices(draw):
    nx, ny = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    count = draw(st.integers(1, 60))
    cells = draw(st.lists(st.tuples(st.integers(0, nx - 1), st.integers(0, ny - 1)), min_size=count, max_size=count))
    weight = draw(st.lists(st.floats(0.001, 1000.0), min_size=count, max_size=count))
    fanouts = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    return np.array(cells), np.array(weight), (nx, ny), tuple(fanouts)


@settings(max_examples=50, deadline=None)
@given(lattices())
def test_every_cell_lies_in_exactly_one_leaf_and_in_one_child_of_each_node_above(lattice):
    cells, weight, (nx, ny), fanouts = lattice
    packing = pack(cells, weight, (nx, ny), fanouts)
    tree, box = packing.tree, packing.box
    owners = np.zeros((len(tree.levels), nx, ny), int)
    inside = np.zeros((nx, ny), int)
    for node, (x0, y0, x1, y1) in enumerate(box):
        owners[tree.level[node], x0:x1, y0:y1] += 1
        if tree.children[node] == 0:
            inside[x0:x1, y0:y1] += 1
        if node:
            above = box[tree.parent[node]]
            assert (box[node] == 0).all() or (x0 >= above[0] and y0 >= above[1] and x1 <= above[2] and y1 <= above[3])
    assert (inside == 1).all()
    assert owners.max() == 1
    assert tuple(box[0]) == (0, 0, nx, ny)


@settings(max_examples=50, deadline=None)
@given(lattices())
def test_every_box_holds_weight_and_no_node_has_more_children_than_asked(lattice):
    cells, weight, shape, fanouts = lattice
    packing = pack(cells, weight, shape, fanouts)
    tree = packing.tree
    elsewhere = tree.children[0]
    assert tree.parent[elsewhere] == 0
    assert tree.children[elsewhere] == 0
    assert not packing.box[elsewhere].any()
    mass = np.zeros(shape)
    np.add.at(mass, tuple(cells.T), weight)
    for node, (x0, y0, x1, y1) in enumerate(packing.box):
        assert node == elsewhere or mass[x0:x1, y0:y1].sum() > 0
        assert tree.children[node] <= (fanouts[tree.level[node]] if tree.level[node] < len(fanouts) else 0) + (node == 0)
        assert node == 0 or tree.children[node] != 1


@settings(max_examples=50, deadline=None)
@given(lattices(), st.randoms(use_true_random=False))
def test_the_order_of_the_cells_is_of_no_account(lattice, random):
    cells, weight, shape, fanouts = lattice
    # Whole weights, so that no sum depends on the order.
    weight = np.ceil(weight)
    order = list(range(len(cells)))
    random.shuffle(order)
    first, second = pack(cells, weight, shape, fanouts), pack(cells[order], weight[order], shape, fanouts)
    assert np.array_equal(first.tree.parent, second.tree.parent)
    assert np.array_equal(first.box, second.box)


def test_a_node_with_fewer_lines_than_pieces_gets_fewer_children_and_one_cell_is_a_leaf_early():
    # Column 0 holds one cell, so the left half cannot be cut again; the right half can.
    packing = pack([[0, 0], [5, 0], [6, 0]], [2.0, 1.0, 1.0], (8, 1), (2, 4))
    assert packing.box.tolist() == [[0, 0, 8, 1], [0, 0, 3, 1], [3, 0, 8, 1], [0, 0, 0, 0], [3, 0, 6, 1], [6, 0, 8, 1]]
    assert packing.tree.parent.tolist() == [-1, 0, 0, 0, 2, 2]


def test_one_cell_gives_one_tile_and_elsewhere():
    packing = pack([[3, 4]], [1.0], (10, 10), (4, 4))
    assert packing.box.tolist() == [[0, 0, 10, 10], [0, 0, 10, 10], [0, 0, 0, 0]]


def test_of_two_equally_good_cuts_the_lower_is_taken():
    packing = pack([[0, 0], [1, 0], [2, 0]], [1.0, 1.0, 1.0], (3, 1), (2,))
    assert packing.box[1].tolist() == [0, 0, 1, 1]


def test_any_fanout_is_met_exactly_and_evenly_where_weight_is_smooth():
    axis = np.arange(200)
    cells = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    weight = 1.0 + np.hypot(*(cells - 60).T) / 50
    for fanout in (2, 3, 7, 22, 101):
        packing = pack(cells, weight, (200, 200), (fanout,))
        sums = [weight[Locator.of(packing.box[packing.tree.leaves], 200, 200).find(*(cells.T + 1)) == leaf].sum() for leaf in range(fanout)]
        assert len(packing.tree.leaves) == fanout + 1
        assert max(sums) < EVEN * weight.sum() / fanout


def test_tiles_are_about_square_also_in_a_long_strip():
    axes = np.arange(400), np.arange(20)
    cells = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    for turned in (cells, cells[:, ::-1]):
        shape = tuple(int(side) for side in turned.max(axis=0) + 1)
        box = pack(turned, np.ones(len(turned)), shape, (20,)).box[1:-1]
        sides = box[:, 2:] - box[:, :2]
        assert (sides.max(axis=1) <= 2 * sides.min(axis=1)).all()


@pytest.mark.parametrize(
    ("cells", "weight", "shape", "fanouts", "word"),
    [
        ([[0, 0]], [0.0], (2, 2), (2,), "all zero"),
        (np.zeros((0, 2), int), [], (2, 2), (2,), "all zero"),
        ([[0, 0]], [math.nan], (2, 2), (2,), "finite"),
        ([[0, 0]], [-1.0], (2, 2), (2,), "not negative"),
        ([[2, 0]], [1.0], (2, 2), (2,), "inside"),
        ([[0.5, 0]], [1.0], (2, 2), (2,), "integers"),
        ([[0, 0]], [1.0, 2.0], (2, 2), (2,), "shape"),
        ([[0, 0]], [1.0], (0, 2), (2,), "at least 1"),
        ([[0, 0]], [1.0], (2, 2), (), "fanouts"),
        ([[0, 0]], [1.0], (2, 2), (2, 0), "fanouts"),
    ],
)
def test_a_bad_argument_is_named(cells, weight, shape, fanouts, word):
    with pytest.raises(ValueError, match=word):
        pack(cells, weight, shape, fanouts)


@settings(max_examples=200)
@given(st.floats(1e-3, 1e9), st.floats(1e-3, 100.0), st.sampled_from([("add-remove", 8), ("replace-one", 16)]))
def test_the_shape_has_about_an_eighth_of_users_times_epsilon_leaves_and_half_of_that_for_twice_the_noise(users, epsilon, relation):
    neighbours, share = relation
    fanouts = shape_for(users, epsilon, neighbours)
    leaves = min(max(users * epsilon / share, 1), MAX_LEAVES)
    assert 0.6 * leaves - 1 <= math.prod(fanouts) <= 1.4 * leaves + 1
    assert max(fanouts) - min(fanouts) <= 1
    assert len(fanouts) == 1 + (round(leaves) > 16) + (round(leaves) > 500)


def test_shapes_of_the_accuracy_bench():
    for users, epsilon, fanouts in ((10_000, 0.1, (11, 11)), (10_000, 1.0, (11, 11, 10)), (100_000, 1.0, (23, 23, 24))):
        assert shape_for(users, epsilon, "add-remove") == fanouts
        assert shape_for(users, 2 * epsilon) == fanouts


@pytest.mark.parametrize(("users", "epsilon"), [(0, 1.0), (-5, 1.0), (100, 0.0), (100, math.nan), (math.inf, 1.0), (100, -1.0)])
def test_a_shape_needs_finite_numbers_above_zero(users, epsilon):
    with pytest.raises(ValueError, match="above zero"):
        shape_for(users, epsilon)


def test_a_shape_needs_a_relation_that_exists():
    with pytest.raises(ValueError, match="neighbours"):
        shape_for(100, 1.0, "replace")


@pytest.mark.parametrize(
    "box",
    [
        [[0, 0, 2, 4]],
        [[0, 0, 4, 4], [1, 1, 2, 2]],
        [[0, 0, 2, 4], [2, 0, 4, 3]],
        [[0, 0, 2, 4], [2, 0, 5, 4]],
        [[0, 0, 2, 4], [2, 0, 4, 4], [3, 3, 3, 4]],
        [[0, 0, 2, 4], [1, 0, 4, 4]],
        [[0, 1, 4, 4]],
        [],
    ],
)
def test_boxes_with_a_gap_or_an_overlap_are_refused(box):
    with pytest.raises(ValueError, match="tile the rectangle"):
        Locator.of(np.array(box, np.int64).reshape(-1, 4), 4, 4)


def test_two_million_points_a_second_are_located():
    generator = np.random.default_rng(5)
    cells = generator.integers(0, 2000, (40_000, 2))
    packing = pack(cells, generator.exponential(30.0, len(cells)), (2000, 2000), (64, 64))
    locator = Locator.of(packing.box[packing.tree.leaves] * 1000, 2_000_000, 2_000_000)
    x, y = generator.integers(0, 2_000_000, (2, 1_000_000))
    best = math.inf
    for _ in range(3):
        begin = time.process_time()
        leaf = locator.find(x, y)
        best = min(best, time.process_time() - begin)
    assert leaf.min() >= 0
    assert len(x) / best > RATE_PER_S
