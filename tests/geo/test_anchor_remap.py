"""The optimal remap: where the prior says all, where it says nothing, and what it gains in between."""

from typing import Any

import numpy as np
import pytest

from geo.anchors.remap import Remap
from geo.plane import Plane, Region
from geo.privacy.window_mean import WindowMean, nano_epsilon_per_m

PLANE = Plane(Region("town", 60.1, 24.8, 60.3, 25.2))
EPSILON_PER_M = nano_epsilon_per_m(4.0, 200.0) * 1e-9


def degrees(xy_m: Any) -> Any:
    return PLANE.to_degrees(np.rint(np.asarray(xy_m) * 1000.0).astype(np.int64)).T


def metres(at: Any, xy_m: Any) -> Any:
    back = PLANE.to_mm(*(np.rint(column * 1e7).astype(np.int64) for column in at.T)) / 1000.0
    return np.hypot(*(back - xy_m).T)


@pytest.mark.parametrize("loss", ["mean", "median"])
def test_a_prior_of_one_place_gives_that_place(loss: str) -> None:
    place = np.array([[300.0, -400.0]])
    remap = getattr(Remap(PLANE, *degrees(place), [2.0]), loss)
    noisy = degrees([[0.0, 0.0], [900.0, 0.0], [300.0, -400.0]])
    assert metres(remap(*noisy, EPSILON_PER_M, 1000.0), np.repeat(place, 3, axis=0)) == pytest.approx(0.0, abs=0.1)


@pytest.mark.parametrize("loss", ["mean", "median"])
def test_a_flat_prior_leaves_the_point_within_a_cell(loss: str) -> None:
    cell_m = 40.0
    axis = np.arange(-1500.0, 1501.0, cell_m)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    noisy = np.random.default_rng(1).uniform(-300, 300, (20, 2))
    remap = getattr(Remap(PLANE, *degrees(grid), np.ones(len(grid))), loss)
    assert metres(remap(*degrees(noisy), EPSILON_PER_M, 1000.0), noisy).max() < cell_m


def test_a_point_with_no_place_in_reach_stays() -> None:
    remap = Remap(PLANE, *degrees([[5000.0, 0.0]]), [1.0])
    noisy = np.array([[0.0, 0.0], [4500.0, 0.0]])
    for got in (remap.mean(*degrees(noisy), EPSILON_PER_M, 1000.0), remap.median(*degrees(noisy), EPSILON_PER_M, 1000.0)):
        assert metres(got, np.array([[0.0, 0.0], [5000.0, 0.0]])) == pytest.approx(0.0, abs=0.1)


def test_places_of_no_prior_do_not_count() -> None:
    remap = Remap(PLANE, *degrees([[0.0, 0.0], [200.0, 0.0]]), [0.0, 1.0])
    assert metres(remap.mean(*degrees([[0.0, 0.0]]), EPSILON_PER_M, 1000.0), np.array([[200.0, 0.0]]))[0] < 0.1


def test_it_lowers_the_expected_loss_on_a_clustered_prior_and_each_loss_has_its_own_best() -> None:
    generator = np.random.default_rng(3)
    middles = generator.uniform(-2500, 2500, (8, 2))
    places = middles[generator.integers(0, 8, 400)] + generator.normal(0, 60, (400, 2))
    prior = generator.exponential(1.0, 400)
    visited = generator.choice(400, 3000, p=prior / prior.sum())
    truth = places[visited]
    mechanism = WindowMean(PLANE, 10, nano_epsilon_per_m(4.0, 200.0))
    cells = mechanism.cells(np.rint(truth * 1000).astype(np.int64), np.ones(3000, np.int64))
    noisy = mechanism.publish(mechanism.perturb(b"k" * 16, np.arange(3000, dtype=np.uint64), 0, cells)[0])
    remap = Remap(PLANE, *degrees(places), prior)
    mean, median = (function(*noisy.T, EPSILON_PER_M, mechanism.radius_m(0.99)) for function in (remap.mean, remap.median))
    raw, to_mean, to_median = (metres(at, truth) for at in (noisy, mean, median))
    assert to_median.mean() < to_mean.mean() < 0.75 * raw.mean()
    assert (to_mean**2).mean() < (to_median**2).mean() < 0.75 * (raw**2).mean()


@pytest.mark.parametrize(
    ("lat", "lon", "prior", "words"),
    [
        ([60.2], [25.0], [-1.0], "at least 0"),
        ([60.2], [25.0], [0.0], "somewhere"),
        ([60.2], [float("nan")], [1.0], "finite"),
        ([60.2], [25.0, 25.1], [1.0], "one shape"),
        ([], [], [], "somewhere"),
    ],
)
def test_a_prior_that_is_none_is_refused(lat: Any, lon: Any, prior: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Remap(PLANE, lat, lon, prior)
