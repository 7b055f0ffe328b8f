"""Smoothing: each leaf keeps its count, fuller neighbours attract, and scale, order and empty places are of no account."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.tiling.locate import Locator
from geo.tiling.pack import pack
from geo.tiling.smoothing import Smoothing


def town(seed=1, side=60, roads=900, fanouts=(5, 5)):
    generator = np.random.default_rng(seed)
    cells = np.clip(generator.normal(side / 2, side / 5, (roads, 2)).astype(int), 0, side - 1)
    weight = generator.exponential(1.0, roads)
    packing = pack(cells, weight, (side, side), fanouts)
    boxes = packing.box[packing.tree.leaves]
    return cells, weight, Locator.of(boxes, side, side).find(*(cells.T + 1)), len(boxes)


def spread(weight, leaf, count):
    """Counts on places, in proportion to weight."""
    held = np.bincount(leaf, weight, minlength=len(count))
    return weight * (count / np.where(held > 0, held, 1.0))[leaf]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([(3,), (5, 5), (4, 4, 4)]))
def test_every_leaf_keeps_its_count(seed, fanouts):
    cells, weight, leaf, leaves = town(seed % 7, fanouts=fanouts)
    count = np.random.default_rng(seed).negative_binomial(0.3, 0.01, leaves)
    smooth = Smoothing(cells, weight, leaf, leaves).weights(count)
    assert np.isfinite(smooth).all()
    assert (smooth > 0).all()
    held = np.bincount(leaf, spread(smooth, leaf, count), minlength=leaves)
    inside = np.bincount(leaf, minlength=leaves) > 0
    assert np.allclose(held[inside], count[inside])


def test_a_crowd_that_changes_slowly_is_found_better_than_by_an_even_spread():
    cells, weight, leaf, leaves = town(roads=3000)
    crowd = weight * np.exp(-np.hypot(*(cells - 30).T) / 8)
    count = np.bincount(leaf, crowd, minlength=leaves)
    even = np.abs(spread(weight, leaf, count) - crowd).sum()
    smooth = np.abs(spread(Smoothing(cells, weight, leaf, leaves).weights(count), leaf, count) - crowd).sum()
    assert smooth < 0.7 * even


def test_even_density_stays_even():
    cells, weight, leaf, leaves = town()
    count = 7.0 * np.bincount(leaf, weight, minlength=leaves)
    smooth = Smoothing(cells, weight, leaf, leaves).weights(count) / weight
    assert np.allclose(smooth, smooth[0])


def test_counts_of_nobody_and_of_a_leaf_without_places_change_nothing():
    cells, weight, leaf, leaves = town()
    smoothing = Smoothing(cells, weight, leaf, leaves)
    assert np.array_equal(smoothing.weights(np.zeros(leaves)), weight)
    (nowhere,) = np.setdiff1d(np.arange(leaves), leaf)
    count = np.arange(leaves)
    more = count.copy()
    more[nowhere] = 10**9
    assert np.array_equal(smoothing.weights(count), smoothing.weights(more))


def test_units_and_order_are_of_no_account():
    cells, weight, leaf, leaves = town()
    count = np.arange(leaves) ** 2
    base = Smoothing(cells, weight, leaf, leaves).weights(count)
    order = np.random.default_rng(2).permutation(len(weight))
    again = Smoothing(cells[order] * 25.0 - 1e5, 1000 * weight[order], leaf[order], leaves).weights(3 * count)
    assert np.allclose(spread(again, leaf[order], count), spread(base, leaf, count)[order])


def test_places_without_weight_hold_nobody_and_no_places_give_no_weights():
    cells, weight, leaf, leaves = town()
    weight = np.where(np.arange(len(weight)) % 3, weight, 0.0)
    smooth = Smoothing(cells, weight, leaf, leaves).weights(np.ones(leaves))
    assert ((smooth == 0) == (weight == 0)).all()
    assert Smoothing(np.zeros((0, 2)), [], [], 3).weights(np.ones(3)).tolist() == []
    assert Smoothing([[1, 1]], [0.0], [0], 1).weights(np.ones(1)).tolist() == [0.0]


@pytest.mark.parametrize(
    ("xy", "weight", "leaf", "word"),
    [
        ([[0, 0]], [1.0, 1.0], [0], "shapes"),
        ([0, 0], [1.0, 1.0], [0, 0], "shapes"),
        ([[0, 0]], [-1.0], [0], "not negative"),
        ([[0, 0]], [np.nan], [0], "finite"),
        ([[0, 0]], [1.0], [2], "`leaf`"),
        ([[0, 0]], [1.0], [-1], "`leaf`"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(xy, weight, leaf, word):
    with pytest.raises(ValueError, match=word):
        Smoothing(xy, weight, leaf, 2)


@pytest.mark.parametrize("count", [[1.0], [1.0, -1.0], [1.0, np.nan], [1.0, np.inf]])
def test_counts_that_are_none_are_refused(count):
    with pytest.raises(ValueError, match="count"):
        Smoothing([[0, 0]], [1.0], [0], 2).weights(np.array(count))
