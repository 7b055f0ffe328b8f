import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.plane import Plane, Region
from geo.privacy.predictive import Charges, Predictive, matching_test
from geo.privacy.window_mean import WindowMean, nano_epsilon_per_m
from streaming.ledger import Ledger

SECRET = bytes(range(32))
PLANE = Plane(Region("bay", -37.0, 179.0, -33.0, -177.0))
EPSILON = nano_epsilon_per_m(4, 200)
WINDOW_MEAN = WindowMean(PLANE, 10, EPSILON)
MECHANISM = Predictive(WINDOW_MEAN, *matching_test(PLANE, WINDOW_MEAN.radius_m(0.9)))
USER = np.arange(50, dtype=np.uint64)
CELLS = np.zeros((50, 2), dtype=np.int64)
NEAR = np.tile(np.array([[60, -45]], dtype=np.int64), (50, 1))
"""750 m from the cell, where both outcomes are likely."""
YES, NO = np.ones(50, dtype=bool), np.zeros(50, dtype=bool)

coordinates = st.integers(-20_000, 20_000)
near = st.integers(-2_000, 2_000)


# ── the guarantee, from exact probabilities ──────────────────────────────────────────────────────────────────────────
def coarse(step_m=50, radius_m=200):
    window_mean = WindowMean(PLANE, step_m, nano_epsilon_per_m(4, radius_m))
    return Predictive(window_mean, *matching_test(PLANE, window_mean.radius_m(0.9)))


def worst_excess(mechanism, claimed=None):
    """Return the largest loss of any outcome in excess of the claim, and the largest share of the claim that is used.

    Over pairs of cells, predictions, and outputs (easy, or hard with a released cell) of a small grid. A pair of cells stands for the
    nearest two means that fall in them, so that the claim is as small as it gets.
    """
    claimed = claimed or mechanism
    window_mean = mechanism.window_mean
    side = np.arange(-6, 7)
    cells = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    difference = cells[:, None] - cells[None, :]
    gap = np.maximum(np.abs(difference) - 1, 0) * window_mean.step_m / window_mean.plane.scale_max
    charges = [claimed.charge_micro(float(metres)) for metres in np.hypot(gap[..., 0], gap[..., 1]).ravel()]
    test = np.array([charge.test for charge in charges]).reshape(len(cells), -1)
    whole = np.array([charge.test + charge.noise for charge in charges]).reshape(len(cells), -1)
    outputs = np.array([[0, 0], [-6, 6], [3, 1], [40, -2], [60, 60]])
    log_cell = np.sum(np.log(window_mean.noise.pmf(outputs[:, None] - cells)), axis=-1)
    different = np.any(difference, axis=-1)
    excess, used = -math.inf, 0.0
    for prediction in ([0, 0], [-6, -6], [9, 2], [14, 14], [15, -3], [60, 1], [-700, 400]):
        with np.errstate(divide="ignore", invalid="ignore"):
            easy, hard = np.log(mechanism.outcome_probabilities(cells, np.tile(prediction, (len(cells), 1)))).T
            pairs = [(easy[:, None] - easy, test), (hard[:, None] - hard, test)]
            pairs += [(column[:, None] - column, whole) for column in log_cell + hard]
        for loss, claim in pairs:
            micro = np.nan_to_num(loss[different], nan=0.0, posinf=np.inf, neginf=-np.inf) * 1e6
            excess = max(excess, float(np.max(micro - claim[different])))
            used = max(used, float(np.max(micro / claim[different])))
    return excess, used


@pytest.mark.parametrize(("step_m", "radius_m"), [(50, 200), (10, 200), (1, 100), (200, 100)])
def test_no_outcome_of_any_two_cells_and_prediction_exceeds_the_charge(step_m, radius_m):
    excess, used = worst_excess(coarse(step_m, radius_m))
    assert excess <= 1e-3
    assert used > 0.95


def test_the_exact_check_finds_a_test_without_noise():
    class NoNoise:
        def cdf(self, z):
            return (np.asarray(z) >= 0).astype(float)

    broken = coarse()
    broken.noise = NoNoise()
    assert worst_excess(broken)[0] == math.inf


def test_the_exact_check_finds_too_little_noise():
    claimed = coarse()
    factor = math.ceil(claimed.test_nano_epsilon_per_m * 1.3)
    assert worst_excess(Predictive(claimed.window_mean, factor, claimed.threshold_m), claimed)[0] > 0


def test_the_exact_check_finds_unpaid_noise():
    window_mean = WindowMean(PLANE, 50, EPSILON * 13 // 10)
    claimed = coarse()
    assert worst_excess(Predictive(window_mean, claimed.test_nano_epsilon_per_m, claimed.threshold_m), claimed)[0] > 0


@settings(deadline=None, max_examples=200)
@given(st.tuples(coordinates, coordinates), st.tuples(coordinates, coordinates), st.tuples(near, near), st.integers(1, 3))
def test_test_of_two_means_is_within_the_charge(place, shift, prediction, exponent):
    mm = np.array([place, np.add(place, np.array(shift) // 10**exponent)], dtype=np.int64) * 1000 + 17
    cells = WINDOW_MEAN.cells(mm, np.ones(2, dtype=np.int64))
    losses = np.log(MECHANISM.outcome_probabilities(cells, np.array([prediction] * 2)))
    ground_m = math.hypot(*(mm[1] - mm[0])) / 1000 / PLANE.scale_max
    assert np.max(np.abs(losses[1] - losses[0])) * 1e6 <= MECHANISM.charge_micro(ground_m).test + 1e-6


def exactly(cells, prediction):
    low, high = WINDOW_MEAN.cell_bounds[:2].tolist(), WINDOW_MEAN.cell_bounds[2:].tolist()
    clipped = [min(max(v, a), b) for v, a, b in zip(prediction, low, high, strict=True)]
    return math.isqrt(100 * sum((a - b) ** 2 for a, b in zip(cells, clipped, strict=True)))


@given(st.tuples(coordinates, coordinates), st.tuples(*[st.integers(-(2**63), 2**63 - 1) | coordinates] * 2))
def test_probabilities_are_those_of_the_whole_metres_from_cell_to_clipped_prediction(cell, prediction):
    cell = np.clip(cell, WINDOW_MEAN.cell_bounds[:2], WINDOW_MEAN.cell_bounds[2:])
    easy, hard = MECHANISM.outcome_probabilities(cell[None], np.array([prediction]))[0]
    margin = MECHANISM.threshold_m - exactly(cell.tolist(), prediction)
    assert (easy, hard) == (MECHANISM.noise.cdf(margin), MECHANISM.noise.cdf(-margin - 1))
    assert easy + hard == pytest.approx(1)


# ── charges and statement ────────────────────────────────────────────────────────────────────────────────────────────
@given(st.floats(0, 1e6))
def test_charges_cover_radius_snapping_and_whole_metres(radius):
    root = Fraction(math.isqrt(2 * 10**60) + 1, 10**30)
    metres = Fraction(radius) + 10 * root + 1
    exact = Fraction(MECHANISM.test_nano_epsilon_per_m, 1000) * metres
    charges = MECHANISM.charge_micro(radius)
    assert exact - Fraction(1, 10**20) <= charges.test < exact + 1
    assert charges.noise == WINDOW_MEAN.charge_micro(radius)


def test_statement():
    assert MECHANISM.name == "predictive/discrete-laplace-test"
    assert MECHANISM.delta == MECHANISM.noise.delta + WINDOW_MEAN.delta <= Fraction(1, 1 << 60)
    test, noise = MECHANISM.test_nano_epsilon_per_m * 1e-9, EPSILON * 1e-9
    loss = (test + noise) * (MECHANISM.delta_reach_m + math.sqrt(2) * 10) + test
    assert float(MECHANISM.delta) * (1 + math.exp(loss)) == pytest.approx(2**-30, rel=1e-3)


def test_defaults_cost_two_fifths_of_a_release_for_an_easy_tick():
    assert MECHANISM.charge_micro(200) == Charges(test=601854, noise=1484321)


def test_charging_by_outcome_covers_every_sequence_and_keeps_the_limit():
    users, ticks, window, rng = 40, 80, 20, np.random.default_rng(3)
    charges = MECHANISM.charge_micro(200)
    reserve = charges.test + charges.noise
    ledger = Ledger(window, 6 * reserve, {}, np.zeros(users, np.int64), None)
    place_mm = np.cumsum(rng.integers(-60_000, 60_000, (ticks, users, 2)), axis=0)
    angle = rng.uniform(0, 2 * np.pi, (ticks, users))
    moved_mm = place_mm + np.floor(200_000 * PLANE.scale_min * np.stack([np.cos(angle), np.sin(angle)], axis=-1)).astype(np.int64)
    prediction, has = np.zeros((users, 2), dtype=np.int64), np.zeros(users, dtype=bool)
    spent, loss, outcome = np.zeros((ticks, users), np.int64), np.zeros((ticks, users)), np.zeros((ticks, users, 2), dtype=bool)
    for tick in range(ticks):
        ledger.advance(tick)
        may = np.flatnonzero(ledger.grants(np.arange(users), np.where(has, reserve, charges.noise)))
        true, other = (WINDOW_MEAN.cells(mm[tick], np.ones(users, dtype=np.int64))[may] for mm in (place_mm, moved_mm))
        out, easy, _ = MECHANISM.release(SECRET, may.astype(np.uint64), tick, true, prediction[may], has[may])
        spent[tick, may] = np.where(has[may], charges.test, 0) + np.where(easy, 0, charges.noise)
        ledger.record(tick, may, spent[tick, may])
        tests = np.log([MECHANISM.outcome_probabilities(cells, prediction[may]) for cells in (true, other)])
        noise = np.log([WINDOW_MEAN.noise.pmf(out - cells).prod(axis=1) for cells in (true, other)])
        loss[tick, may] = has[may] * np.where(easy, *(tests[0] - tests[1]).T) + ~easy * (noise[0] - noise[1])
        outcome[tick, may] = np.stack([easy, ~easy], axis=1)
        prediction[may], has[may] = out, True
    assert outcome[..., 0].mean() > 0.1
    assert outcome[..., 1].mean() > 0.1
    assert outcome.any(axis=-1).mean() < 0.9
    assert np.all(np.abs(loss) * 1e6 <= spent)
    windows = np.lib.stride_tricks.sliding_window_view(spent, window, axis=0).sum(axis=-1)
    assert windows.max() <= 6 * reserve


# ── parameters for an accuracy ───────────────────────────────────────────────────────────────────────────────────────
@given(st.floats(20, 20_000), st.floats(0.2, 3), st.floats(0.2, 1))
def test_bad_predictions_pass_with_a_tenth_and_the_threshold_is_the_share_of_the_paper(accuracy_m, rho, eta):
    test, threshold_m = matching_test(PLANE, accuracy_m, rho, eta)
    total_m = math.floor(accuracy_m * PLANE.scale_min / eta)
    noise_m = total_m - threshold_m
    assert noise_m - 1e-6 <= rho * threshold_m < noise_m + rho + 1 + 1e-6
    exponent = test * 1e-9 / PLANE.scale_max
    assert math.exp(-exponent * noise_m) / (1 + math.exp(-exponent)) == pytest.approx(0.1, rel=1e-4)


def test_parameters_approach_those_of_the_paper():
    test, threshold_m = matching_test(PLANE, 20_000.0)
    assert test * 1e-9 * 20_000 == pytest.approx(0.5 * 1.6094 * (1 + 1 / 0.8), rel=0.01)
    assert threshold_m * test * 1e-9 == pytest.approx(1.6094 / 0.8, rel=0.01)


def test_a_prediction_beyond_the_stated_distance_passes_at_most_a_tenth():
    accuracy_m = WINDOW_MEAN.radius_m(0.9)
    plane_m = accuracy_m * 2 * PLANE.scale_min
    far = np.array([[math.ceil(plane_m / 10), 0]])
    assert 0.09 < MECHANISM.outcome_probabilities(CELLS[:1], far)[0, 0] <= 0.1


@pytest.mark.parametrize(
    ("arguments", "field"),
    [((0.0,), "accuracy_m"), ((math.nan,), "accuracy_m"), ((100.0, 0.0), "rho"), ((100.0, 0.8, math.inf), "eta"), ((0.5,), "accuracy_m")],
)
def test_illegal_accuracies_are_refused(arguments, field):
    with pytest.raises(ValueError, match=f"`{field}` should"):
        matching_test(PLANE, *arguments)


# ── releases ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_easy_repeats_the_prediction_and_hard_is_the_window_mean():
    out, easy, _ = MECHANISM.release(SECRET, USER, 7, CELLS, NEAR, YES)
    assert 0 < easy.sum() < len(easy)
    np.testing.assert_array_equal(out[easy], NEAR[easy])
    np.testing.assert_array_equal(out[~easy], WINDOW_MEAN.perturb(SECRET, USER, 7, CELLS)[0][~easy])


@pytest.mark.parametrize(
    ("threshold_m", "noise_m", "easy"), [(720, 0, True), (719, 0, False), (700, 20, True), (700, 19, False), (900, -181, False)]
)
def test_easy_iff_the_distance_is_at_most_threshold_plus_noise(monkeypatch, threshold_m, noise_m, easy):
    mechanism = Predictive(WINDOW_MEAN, MECHANISM.test_nano_epsilon_per_m, threshold_m)
    monkeypatch.setattr(mechanism.noise, "sample", lambda bits: np.full(len(bits), noise_m))
    # 720.07 m, rounded down.
    away = np.tile(np.array([[-72, 1]]), (50, 1))
    assert mechanism.release(SECRET, USER, 7, CELLS, away, YES)[1].tolist() == [easy] * 50


def test_without_a_prediction_it_is_the_window_mean_whatever_stands_in_its_place():
    expected, expected_look = WINDOW_MEAN.perturb(SECRET, USER, 7, CELLS)
    for nothing in (CELLS, NEAR):
        out, easy, look = MECHANISM.release(SECRET, USER, 7, CELLS, nothing, NO)
        assert not easy.any()
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(look, expected_look)


def test_same_input_same_release_in_any_order_company_and_after_pickling():
    cells, has = np.arange(100).reshape(50, 2), USER % 3 > 0
    first = MECHANISM.release(SECRET, USER, 7, cells, NEAR, has)
    again = MECHANISM.release(SECRET, USER[::-1], 7, cells[::-1], NEAR[::-1], has[::-1])
    pickled = pickle.loads(pickle.dumps(MECHANISM)).release(SECRET, USER, 7, cells, NEAR, has)
    alone = MECHANISM.release(SECRET, USER[9:10], 7, cells[9:10], NEAR[9:10], has[9:10])
    for a, b, c, d in zip(first, again, pickled, alone, strict=True):
        np.testing.assert_array_equal(a, b[::-1])
        np.testing.assert_array_equal(a, c)
        np.testing.assert_array_equal(a[9:10], d)
    assert [part.shape for part in MECHANISM.release(SECRET, USER[:0], 7, CELLS[:0], CELLS[:0], NO[:0])] == [(0, 2), (0,), (0,)]


def test_arguments_are_left_alone():
    cells, prediction, has = CELLS.copy(), NEAR.copy(), YES.copy()
    MECHANISM.release(SECRET, USER, 7, cells, prediction, has)
    for now, before in ((cells, CELLS), (prediction, NEAR), (has, YES)):
        np.testing.assert_array_equal(now, before)


def test_everything_in_the_key_changes_the_look_and_the_test():
    many = np.arange(2000, dtype=np.uint64)
    cells, near = np.zeros((2000, 2), dtype=np.int64), np.tile(NEAR[:1], (2000, 1))
    yes, east, north = np.ones(2000, dtype=bool), np.array([1, 0]), np.array([0, 1])
    test, threshold_m = MECHANISM.test_nano_epsilon_per_m, MECHANISM.threshold_m
    variants = [
        MECHANISM.release(SECRET, many, 7, cells, near, yes),
        MECHANISM.release(SECRET[::-1], many, 7, cells, near, yes),
        MECHANISM.release(SECRET, many + np.uint64(1 << 40), 7, cells, near, yes),
        MECHANISM.release(SECRET, many, 8, cells, near, yes),
        MECHANISM.release(SECRET, many, 7, cells + east, near, yes),
        MECHANISM.release(SECRET, many, 7, cells + north, near, yes),
        MECHANISM.release(SECRET, many, 7, cells, near + east, yes),
        MECHANISM.release(SECRET, many, 7, cells, near + north, yes),
        Predictive(WINDOW_MEAN, test, threshold_m + 1).release(SECRET, many, 7, cells, near, yes),
        Predictive(WINDOW_MEAN, test + 1, threshold_m).release(SECRET, many, 7, cells, near, yes),
        Predictive(WindowMean(PLANE, 10, EPSILON - 1), test, threshold_m).release(SECRET, many, 7, cells, near, yes),
    ]
    chance = np.prod(MECHANISM.outcome_probabilities(cells[:1], near[:1]))
    for i, (_, one, _) in enumerate(variants):
        for _, other, _ in variants[:i]:
            assert np.mean(one != other) == pytest.approx(2 * chance, abs=0.06)
    assert len(np.unique([look for _, _, look in variants])) == len(variants) * len(many)


def test_the_outcome_says_nothing_about_the_noise_of_the_cell():
    many = np.arange(20_000, dtype=np.uint64)
    cells, near = np.zeros((20_000, 2), dtype=np.int64), np.tile(NEAR[:1], (20_000, 1))
    _, easy, _ = MECHANISM.release(SECRET, many, 7, cells, near, np.ones(20_000, dtype=bool))
    noise = WINDOW_MEAN.perturb(SECRET, many, 7, cells)[0]
    for column in (*noise.T, *np.abs(noise).T):
        assert abs(np.corrcoef(easy, column)[0, 1]) < 5 / math.sqrt(len(many))


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ((0, 1), "test_nano_epsilon"),
        ((1 << 63, 1), "test_nano_epsilon"),
        ((10**6, -1), "threshold_m"),
        ((10**6, 10**9), "threshold_m"),
        ((1, 1), "exponent"),
    ],
)
def test_illegal_parameters_are_refused(arguments, field):
    with pytest.raises(ValueError, match=field):
        Predictive(WINDOW_MEAN, *arguments)


def test_illegal_arguments_are_refused():
    with pytest.raises(ValueError, match="radius_m"):
        MECHANISM.charge_micro(-1.0)
    with pytest.raises(ValueError, match="secret"):
        MECHANISM.release(b"short", USER, 7, CELLS, NEAR, YES)


@pytest.mark.parametrize("q", [0.2, 0.5, 0.95, 0.999])
def test_beyond_the_stated_radius_an_easy_outcome_is_rare(q):
    radius_m = MECHANISM.easy_radius_m(q)
    cells = np.stack([np.arange(0, 30_000), np.zeros(30_000)], axis=1).astype(np.int64)
    easy = MECHANISM.outcome_probabilities(cells, np.zeros((30_000, 2), np.int64))[:, 0]
    metres = cells[:, 0] * WINDOW_MEAN.step_m
    beyond = metres / PLANE.scale_max > radius_m
    assert easy[beyond].max() <= 1 - q
    within = metres < 0.98 * (radius_m * PLANE.scale_min - WINDOW_MEAN.step_m)
    assert easy[within].min(initial=1) > 1 - q


def test_confidence_of_an_easy_outcome_has_a_range():
    for q in (0, 1, float("nan")):
        with pytest.raises(ValueError, match="`q`"):
            MECHANISM.easy_radius_m(q)
