"""Outcomes and cells of the predictive mechanism follow the claim, and it saves what it promises on parked and slow users."""

import os
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from geo.plane import Plane, Region
from geo.privacy.predictive import Predictive, matching_test
from geo.privacy.window_mean import WindowMean, nano_epsilon_per_m

pytestmark = pytest.mark.statistical

SECRET = b"a secret for tests, 32 bytes ..."
DRAWS = int(os.environ.get("WAYVEIL_TEST_DRAWS", "20000"))
STEP_M, RADIUS_M = 10, 200
PLANE = Plane(Region("bay", 60.0, 24.5, 60.4, 25.3))
WINDOW_MEAN = WindowMean(PLANE, STEP_M, nano_epsilon_per_m(4, RADIUS_M))
MECHANISM = Predictive(WINDOW_MEAN, *matching_test(PLANE, WINDOW_MEAN.radius_m(0.9)))
CHARGES = MECHANISM.charge_micro(RADIUS_M)
ACCEPT_P = 1e-4
REJECT_P = 1e-9
WRONG_SCALES = (0.7, 1.3)
EXPECTED_PER_BIN = 50
CORRELATION_LIMIT = 5.0 / np.sqrt(DRAWS)
DISTANCES = np.array([0, 20, 40, 60, 72, 73, 90, 120, 160])
"""Cells from the prediction; the threshold is 72."""


def wrong(factor):
    """Return a mechanism whose test has noise of another scale."""
    return Predictive(WINDOW_MEAN, round(MECHANISM.test_nano_epsilon_per_m / factor), MECHANISM.threshold_m)


def outcomes(mechanism, cells, prediction, tick=1):
    users = np.arange(len(cells), dtype=np.uint64)
    return mechanism.release(SECRET, users, tick, cells, prediction, np.ones(len(cells), dtype=bool))


def outcome_p_value(drawn, claimed):
    """Chi-square test of the easy outcomes of one mechanism at all distances against the probabilities that another claims."""
    each = DRAWS // len(DISTANCES)
    cells = np.repeat(np.stack([DISTANCES * 3 // 5, -DISTANCES * 4 // 5], axis=1), each, axis=0)
    expected = claimed.outcome_probabilities(cells[::each], np.zeros((len(DISTANCES), 2), dtype=np.int64))[:, 0]
    easy = outcomes(drawn, cells, np.zeros_like(cells))[1].reshape(len(DISTANCES), each).sum(axis=1)
    squares = (easy - each * expected) ** 2 / (each * expected * (1 - expected))
    return float(stats.chi2.sf(squares.sum(), len(DISTANCES)))


def test_outcomes_follow_the_claimed_probabilities():
    assert outcome_p_value(MECHANISM, MECHANISM) > ACCEPT_P


@pytest.mark.parametrize("factor", WRONG_SCALES)
def test_a_wrong_scale_of_the_test_is_rejected(factor):
    assert outcome_p_value(wrong(factor), MECHANISM) < REJECT_P


def test_a_test_without_noise_is_rejected(monkeypatch):
    broken = Predictive(WINDOW_MEAN, MECHANISM.test_nano_epsilon_per_m, MECHANISM.threshold_m)
    monkeypatch.setattr(broken.noise, "sample", lambda bits: np.zeros(len(bits), dtype=np.int64))
    assert outcome_p_value(broken, MECHANISM) < REJECT_P


def p_value(draws, noise):
    """Chi-square test of integer draws against a distribution, over bins that each expect at least `EXPECTED_PER_BIN`."""
    edges, last, z = [], 0.0, int(-40 * noise.scale) - 2
    while (1.0 - noise.cdf(z)) * len(draws) > EXPECTED_PER_BIN:
        if (noise.cdf(z) - last) * len(draws) >= EXPECTED_PER_BIN:
            edges.append(z)
            last = noise.cdf(z)
        z += 1
    observed = np.bincount(np.searchsorted(edges, draws, side="left"), minlength=len(edges) + 1)
    return float(stats.chisquare(observed, np.diff([0.0, *noise.cdf(edges), 1.0]) * len(draws)).pvalue)


@pytest.mark.parametrize("axis", [0, 1])
def test_cells_of_hard_releases_follow_the_window_mean(axis):
    cells = np.tile(np.array([[3, -5]], dtype=np.int64), (DRAWS, 1))
    out, easy, _ = outcomes(MECHANISM, cells, cells + np.array([80, 0]))
    noise = (out - cells)[~easy, axis]
    assert len(noise) > DRAWS / 3
    assert p_value(noise, WINDOW_MEAN.noise) > ACCEPT_P
    for factor in WRONG_SCALES:
        assert p_value(np.rint(noise * factor).astype(np.int64), WINDOW_MEAN.noise) < REJECT_P


@pytest.mark.parametrize(("cell_shift", "prediction_shift", "tick"), [((1, 0), (0, 0), 1), ((0, 0), (0, 1), 1), ((0, 0), (0, 0), 2)])
def test_another_cell_prediction_or_tick_gets_an_independent_test(cell_shift, prediction_shift, tick):
    cells = np.zeros((DRAWS, 2), dtype=np.int64)
    prediction = cells + np.array([60, -45])
    before = outcomes(MECHANISM, cells, prediction)[1]
    after = outcomes(MECHANISM, cells + np.array(cell_shift), prediction + np.array(prediction_shift), tick)[1]
    assert abs(np.corrcoef(before, after)[0, 1]) < CORRELATION_LIMIT


# ── what it saves ────────────────────────────────────────────────────────────────────────────────────────────────────
USERS, TICKS, PARKED = 60, 1440, 480
"""A day of one-minute ticks, of which the last eight hours are parked."""
WALK_MPS, DRIVE_MPS, TRAIN_MPS, JITTER_M = 1.2, 15.0, 30.0, 5.0


def trace(moving_mps, ticks, parked, seed=5):
    """Return cells of shape (ticks, users, 2): headings turn at random, the last `parked` ticks stay put, and fixes jitter."""
    rng = np.random.default_rng(seed)
    heading = rng.uniform(0, 2 * np.pi, USERS) + np.cumsum(rng.normal(0, 0.3, (ticks, USERS)), axis=0)
    pace = np.where(np.arange(ticks) < ticks - parked, 60 * moving_mps, 0.0)[:, None, None]
    place = np.cumsum(pace * np.stack([np.cos(heading), np.sin(heading)], axis=-1), axis=0)
    # Folded like a mirror into a square of 20 km.
    mm = np.abs((np.rint(1000 * (place + rng.normal(0, JITTER_M, place.shape))).astype(np.int64) + 10_000_000) % 40_000_000 - 20_000_000)
    return WINDOW_MEAN.cells(mm.reshape(-1, 2) - 10_000_000, np.ones(ticks * USERS, dtype=np.int64)).reshape(ticks, USERS, 2)


class Run(NamedTuple):
    """What a trace's mechanism released, by tick and user."""

    out: np.ndarray
    easy: np.ndarray
    spend_micro: float
    p90_m: float


def run(mechanism, cells):
    users = np.arange(USERS, dtype=np.uint64)
    prediction, has = np.zeros((USERS, 2), dtype=np.int64), np.zeros(USERS, dtype=bool)
    charges, spend = mechanism.charge_micro(RADIUS_M), 0
    out, easy = np.empty_like(cells), np.empty(cells.shape[:2], dtype=bool)
    for tick, now in enumerate(cells):
        out[tick], easy[tick], _ = mechanism.release(SECRET, users, tick, now, prediction, has)
        spend += int(np.sum(np.where(has, charges.test, 0) + np.where(easy[tick], 0, charges.noise)))
        prediction, has = out[tick], np.ones(USERS, dtype=bool)
    error = np.hypot(*np.moveaxis(out - cells, -1, 0)) * STEP_M
    return Run(out, easy, spend / cells[..., 0].size, float(np.quantile(error, 0.9)))


def window_mean_with(p90_m):
    """Return the window mean with independent noise that is as accurate."""
    low, high = 10.0, 10_000.0
    while high - low > 0.1:
        radius_m = (low + high) / 2
        found = WindowMean(PLANE, STEP_M, nano_epsilon_per_m(4, radius_m))
        low, high = (radius_m, high) if found.radius_m(0.9) < p90_m else (low, radius_m)
    return found


def spend_ratio(found):
    """Return the spend over that of independent noise of equal accuracy."""
    return found.spend_micro / window_mean_with(found.p90_m).charge_micro(RADIUS_M)


@pytest.fixture(scope="module")
def parked():
    return run(MECHANISM, trace(0.0, PARKED, PARKED))


def test_a_parked_user_spends_less_than_half_at_equal_accuracy(parked):
    assert spend_ratio(parked) < 0.45
    assert parked.spend_micro < 0.65 * CHARGES.noise


def test_a_day_of_walking_and_parking_spends_less_at_equal_accuracy():
    assert spend_ratio(run(MECHANISM, trace(WALK_MPS, TICKS, PARKED))) < 0.85


@pytest.mark.parametrize("speed_mps", [DRIVE_MPS, TRAIN_MPS])
def test_a_fast_user_spends_at_most_the_share_of_the_test_more(speed_mps):
    found = run(MECHANISM, trace(speed_mps, 240, 0))
    assert 1 < found.spend_micro / CHARGES.noise <= 1 + CHARGES.test / CHARGES.noise < 1.41


def most_likely(found):
    """Return the parked cell that makes each user's outcomes and cells most probable, by search over a coarse and a fine grid."""
    sizes, best = np.arange(-40, 41, 4), np.zeros((USERS, 2), dtype=np.int64)
    for user in range(USERS):
        drawn = found.out[~found.easy[:, user], user]
        centre = np.rint(np.median(drawn, axis=0)).astype(np.int64)
        segment = np.cumsum(~found.easy[:, user]) - 1
        easy = np.bincount(segment, weights=found.easy[:, user], minlength=len(drawn))
        tested = np.append(np.ones(len(drawn) - 1), 0)
        for grid in (sizes, np.arange(-4, 5)):
            candidates = centre + np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
            score = np.zeros(len(candidates))
            for at, stays, left in zip(drawn, easy, tested, strict=True):
                log_easy, log_hard = np.log(MECHANISM.outcome_probabilities(candidates, np.tile(at, (len(candidates), 1)))).T
                score += stays * log_easy + left * log_hard - float(WINDOW_MEAN.exponent) * np.abs(at - candidates).sum(axis=1)
            centre = candidates[np.argmax(score)]
        best[user] = centre
    return best


def off_m(estimates, cells):
    """Return the root mean square distance of estimates of parked users' cells."""
    truth = cells.mean(axis=0)
    return float(np.sqrt(np.mean(np.sum((estimates - truth) ** 2, axis=-1)))) * STEP_M


def test_averaging_a_parked_user_gains_less_than_with_independent_noise_of_equal_accuracy(parked):
    cells = trace(0.0, PARKED, PARKED)
    users = np.arange(USERS, dtype=np.uint64)
    independent = window_mean_with(parked.p90_m)
    noisy = np.stack([independent.perturb(SECRET, users, tick, now)[0] for tick, now in enumerate(cells)])
    mean, median = off_m(noisy.mean(axis=0), cells), off_m(np.median(noisy, axis=0), cells)
    medians = [np.median(parked.out[~parked.easy[:, user], user], axis=0) for user in range(USERS)]
    attacks = [off_m(estimate, cells) for estimate in (parked.out.mean(axis=0), np.array(medians), most_likely(parked))]
    assert min(attacks) > 2 * max(mean, median)
