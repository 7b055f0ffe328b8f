"""Draws of the window mean follow the claimed distribution, and a tester that accepts them rejects a scale off by 30 %."""

import os
from decimal import Decimal

import numpy as np
import pytest
from pyproj import Geod
from scipy import stats

from geo.plane import Plane, Region
from geo.privacy.discrete_laplace import DiscreteLaplace
from geo.privacy.window_mean import WindowMean, nano_epsilon_per_m

pytestmark = pytest.mark.statistical

SECRET = b"a secret for tests, 32 bytes ..."
DRAWS = int(os.environ.get("WAYVEIL_TEST_DRAWS", "20000"))
STEP_M = 10
EPSILON = nano_epsilon_per_m(4, 200)
ACCEPT_P = 1e-4
REJECT_P = 1e-9
WRONG_SCALES = (0.7, 1.3)
EXPECTED_PER_BIN = 50
RADIUS_TOLERANCE = 0.03
"""Relative; the standard error of an empirical r95 over 20,000 draws is below 1 %."""
CORRELATION_LIMIT = 5.0 / np.sqrt(DRAWS)
GEOD = Geod(ellps="WGS84")
REGIONS = {"0": Region("0", -0.5, 10.0, 0.5, 11.0), "45": Region("45", 44.5, 10.0, 45.5, 11.5), "78": Region("78", 77.5, 10.0, 78.5, 15.0)}


def p_value(draws, noise):
    """Chi-square test of integer draws against a distribution, over bins that each expect at least `EXPECTED_PER_BIN`."""
    edges = [-np.inf]
    z = int(-40 * noise.scale) - 2
    while (1.0 - noise.cdf(z)) * len(draws) > EXPECTED_PER_BIN:
        last = 0.0 if len(edges) == 1 else noise.cdf(edges[-1])
        if (noise.cdf(z) - last) * len(draws) >= EXPECTED_PER_BIN:
            edges.append(z)
        z += 1
    inner = np.array(edges[1:])
    observed = np.bincount(np.searchsorted(inner, draws, side="left"), minlength=len(inner) + 1)
    expected = np.diff(np.concatenate([[0.0], noise.cdf(inner), [1.0]])) * len(draws)
    return float(stats.chisquare(observed, expected).pvalue)


@pytest.fixture(scope="module", params=sorted(REGIONS))
def mechanism(request):
    return WindowMean(Plane(REGIONS[request.param]), STEP_M, EPSILON)


def noise_of(mechanism, cells, tick=1):
    return mechanism.perturb(SECRET, np.arange(len(cells), dtype=np.uint64), tick, cells)[0] - cells


def same_cell(x=3, y=-5):
    return np.tile(np.array([[x, y]], dtype=np.int64), (DRAWS, 1))


@pytest.mark.parametrize("axis", [0, 1])
def test_noise_follows_the_claimed_distribution(mechanism, axis):
    assert p_value(noise_of(mechanism, same_cell())[:, axis], mechanism.noise) > ACCEPT_P


@pytest.mark.parametrize("factor", WRONG_SCALES)
@pytest.mark.parametrize("axis", [0, 1])
def test_a_wrong_scale_is_rejected(mechanism, axis, factor):
    wrong = DiscreteLaplace(mechanism.exponent / Decimal(str(factor)))
    assert p_value(noise_of(mechanism, same_cell())[:, axis], wrong) < REJECT_P


def test_the_tester_rejects_noise_that_only_looks_alike(mechanism):
    # A rounded normal with the same variance, drawn by quantiles.
    normal = np.rint(stats.norm.ppf((np.arange(DRAWS) + 0.5) / DRAWS) * mechanism.noise.variance**0.5).astype(np.int64)
    assert p_value(normal, mechanism.noise) < REJECT_P


@pytest.mark.parametrize("q", [0.5, 0.95])
def test_displacement_on_the_ground_is_as_promised(mechanism, q):
    cells = same_cell(0, 0)
    released = mechanism.publish(mechanism.perturb(SECRET, np.arange(DRAWS, dtype=np.uint64), 2, cells)[0])
    truth = mechanism.plane.to_degrees(cells * STEP_M * 1000)
    metres = GEOD.inv(truth[:, 1], truth[:, 0], released[:, 1], released[:, 0])[2]
    assert np.quantile(metres, q) == pytest.approx(mechanism.radius_m(q), rel=RADIUS_TOLERANCE)


def test_axes_are_uncorrelated(mechanism):
    noise = noise_of(mechanism, same_cell())
    assert abs(np.corrcoef(noise[:, 0], noise[:, 1])[0, 1]) < CORRELATION_LIMIT
    assert abs(np.corrcoef(np.abs(noise[:, 0]), np.abs(noise[:, 1]))[0, 1]) < CORRELATION_LIMIT


@pytest.mark.parametrize("shift", [(1, 0), (0, 1), (-1, 0)])
def test_a_changed_cell_gets_independent_noise(mechanism, shift):
    before, after = noise_of(mechanism, same_cell()), noise_of(mechanism, same_cell() + np.array(shift))
    for a in range(2):
        for b in range(2):
            assert abs(np.corrcoef(before[:, a], after[:, b])[0, 1]) < CORRELATION_LIMIT
    difference = (after - before)[:, 0]
    assert np.var(difference) == pytest.approx(2 * mechanism.noise.variance, rel=0.1)


def test_a_change_within_the_cell_changes_nothing(mechanism):
    user = np.arange(100, dtype=np.uint64)
    sums = np.tile(np.array([[70_000, -30_000]], dtype=np.int64), (100, 1))
    count = np.full(100, 2, dtype=np.int64)
    moved = sums + np.array([9_998, 9_998])
    one, other = (mechanism.perturb(SECRET, user, 1, mechanism.cells(total, count))[0] for total in (sums + 1, moved))
    np.testing.assert_array_equal(one, other)


def test_the_next_tick_gets_independent_noise(mechanism):
    one, other = noise_of(mechanism, same_cell(), tick=1), noise_of(mechanism, same_cell(), tick=2)
    assert abs(np.corrcoef(one[:, 0], other[:, 0])[0, 1]) < CORRELATION_LIMIT
