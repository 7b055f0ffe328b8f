"""The workload of random ranges: what a simulation counts, on every shape of lattice and tree, and never nothing."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.privacy.budgets import level_budgets
from geo.tiling.pack import pack
from geo.tiling.workload import PARTS, range_workload
from geo.tree import Tree

DRAWS = 20_000
SIGMAS = 5.0


def simulated(tree, box, shape, seed=1):
    """Mean nodes used on each level, and its standard error."""
    rng = np.random.default_rng(seed)
    side = np.sqrt(np.exp(rng.uniform(*np.log(PARTS), DRAWS)) * math.prod(shape))
    inside = meets = True
    for axis, length in enumerate(shape):
        low = rng.uniform(0, 1, DRAWS) * np.maximum(length - side, 0)
        # A range longer than the lattice covers all of it.
        high = np.where(side < length, low + side, length)
        inside = inside & (box[:, axis] >= low[:, None]) & (box[:, axis + 2] <= high[:, None])
        meets = meets & (box[:, axis] < high[:, None]) & (box[:, axis + 2] > low[:, None])
    uses = np.where(tree.children == 0, meets, inside)
    uses[:, 1:] &= ~inside[:, tree.parent[1:]]
    uses[:, (box[:, 0] == box[:, 2])] = False
    levels = np.stack([uses[:, part].sum(axis=1) for part in tree.levels], axis=1)
    return levels.mean(axis=0), levels.std(axis=0) / math.sqrt(DRAWS)


def grid(shape, fanouts):
    cells = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1).reshape(-1, 2)
    return pack(cells, np.ones(len(cells)), shape, fanouts)


def village():
    """Few cells: leaves on levels 1, 2 and 3."""
    packing = pack([[2, 2], [3, 3], [30, 4], [31, 40], [32, 41], [33, 42], [60, 9]], np.ones(7), (64, 48), (3, 2, 2))
    assert len({int(level) for level in packing.tree.level[packing.tree.leaves]}) == 3
    return packing, (64, 48)


PACKINGS = {
    "square": (grid((64, 64), (4, 4, 4)), (64, 64)),
    "one level": (grid((64, 64), (30,)), (64, 64)),
    "a strip lower than most ranges": (grid((300, 3), (60, 10)), (300, 3)),
    "a line": (grid((1, 50), (5, 4)), (1, 50)),
    "one cell": (grid((1, 1), (4,)), (1, 1)),
    "early leaves": village(),
}


@pytest.mark.parametrize("name", sorted(PACKINGS))
def test_it_equals_what_random_squares_use(name):
    packing, shape = PACKINGS[name]
    claimed = np.array(range_workload(packing.tree, packing.box, shape))
    mean, error = simulated(packing.tree, packing.box, shape)
    # Sides are integrated at 64 values.
    assert (np.abs(claimed - mean) <= SIGMAS * error + 0.01 * mean).all(), (claimed, mean, error)
    assert claimed[0] == 0


def test_the_leaf_elsewhere_is_not_asked():
    packing, shape = PACKINGS["square"]
    without = packing.tree.children[0] - 1
    alone = Tree(np.array([-1] + [0] * (without + 1)))
    claimed = range_workload(alone, packing.box[: without + 2], shape)
    inner = Tree(np.array([-1] + [0] * without))
    assert claimed == range_workload(inner, packing.box[: without + 1], shape)


def test_one_tile_as_large_as_the_lattice_is_asked_by_every_range():
    packing, shape = PACKINGS["one cell"]
    assert packing.box.tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0]]
    assert range_workload(packing.tree, packing.box, shape) == [0.0, 1.0]


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(0, 2**32))
def test_every_tiling_has_a_level_to_measure(nx, ny, fanouts, seed):
    generator = np.random.default_rng(seed)
    cells = generator.integers(0, [nx, ny], (generator.integers(1, 30), 2))
    packing = pack(cells, np.ones(len(cells)), (nx, ny), fanouts)
    used = range_workload(packing.tree, packing.box, (nx, ny))
    assert used[0] == 0
    assert min(used) >= 0
    assert used[-1] > 1e-3
    assert level_budgets(packing.tree, 1000, workload=used).sum() == 1000


def test_the_scale_of_the_lattice_is_of_no_account():
    packing, (nx, ny) = PACKINGS["early leaves"]
    assert range_workload(packing.tree, packing.box * 7, (7 * nx, 7 * ny)) == pytest.approx(
        range_workload(packing.tree, packing.box, (nx, ny))
    )
