import math
import pickle
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.plane import Plane, Region
from geo.privacy.window_mean import WindowMean, nano_epsilon_per_m

SECRET = bytes(range(32))
EPSILON = 6931471
PLANE = Plane(Region("bay", -37.0, 179.0, -33.0, -177.0))
MECHANISM = WindowMean(PLANE, 10, EPSILON)

sums = st.integers(-(10**15), 10**15)


def one(x, y, count):
    return MECHANISM.cells(np.array([[x, y]]), np.array([count]))[0].tolist()


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(2, (6931471, 3465735, 1386294, 693147)), (4, (13862943, 6931471, 2772588, 1386294)), (10, (23025850, 11512925, 4605170, 2302585))],
)
def test_documented_table(ratio, expected):
    assert tuple(nano_epsilon_per_m(ratio, radius) for radius in (100, 200, 500, 1000)) == expected
    for value in expected:
        assert str(value) in (nano_epsilon_per_m.__doc__ or "")


@given(st.floats(1.001, 1e6), st.floats(1, 1e5))
def test_ratio_within_the_radius_is_never_exceeded(ratio, radius):
    nano = nano_epsilon_per_m(ratio, radius)
    with localcontext() as context:
        context.prec = 80
        exact = Decimal(ratio).ln() * 10**9 / Decimal(radius)
    assert nano <= exact < nano + 1


@pytest.mark.parametrize(("ratio", "radius"), [(1, 10), (math.inf, 10), (math.nan, 10), (2, 0), (2, math.inf), (1.0000001, 1e9)])
def test_illegal_ratios_are_refused(ratio, radius):
    with pytest.raises(ValueError, match="should be"):
        nano_epsilon_per_m(ratio, radius)


@given(sums, sums, st.integers(1, 10**6))
def test_cells_are_the_rounded_mean_in_exact_arithmetic(x, y, count):
    low, high = MECHANISM.cell_bounds[:2].tolist(), MECHANISM.cell_bounds[2:].tolist()
    exact = [math.floor(Fraction(value, count * 10_000) + Fraction(1, 2)) for value in (x, y)]
    assert one(x, y, count) == [min(max(v, a), b) for v, a, b in zip(exact, low, high, strict=True)]


def test_halves_round_up_on_both_sides_of_zero():
    assert one(5_000, -5_000, 1) == [1, 0]
    assert one(4_999, -5_001, 1) == [0, -1]


def test_cells_are_clipped_to_the_grid():
    assert one(10**17, -(10**17), 1) == [MECHANISM.cell_bounds[2], MECHANISM.cell_bounds[1]]


def test_a_window_without_positions_gets_the_public_cell():
    assert one(123_456_789, 5, 0) == MECHANISM.fallback_cell.tolist() == [0, 0]
    with pytest.raises(ValueError, match="`count`"):
        one(0, 0, -1)


@settings(deadline=None)
@given(st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40))
def test_published_positions_are_legal_degrees(x, y):
    lat, lon = MECHANISM.publish(np.array([[x, y]]))[0]
    assert -90 <= lat <= 90
    assert -180 <= lon < 180
    assert (lat, lon) == (round(lat, 6), round(lon, 6))


def test_the_antimeridian_is_written_as_minus_180():
    plane = Plane(Region("line", -1.0, 179.0, 1.0, -179.0))
    assert WindowMean(plane, 1, 10**8).publish(np.array([[0, 0]])).tolist() == [[0.0, -180.0]]


def test_published_cells_are_where_the_plane_says():
    cells = np.array([[100, -200], [-3000, 4000]])
    np.testing.assert_allclose(MECHANISM.publish(cells), PLANE.to_degrees(cells * 10_000), atol=5.1e-7)


def test_exponent_never_exceeds_the_formula():
    exact = EPSILON * 1e-9 * 10 / math.sqrt(2) / PLANE.scale_max
    assert float(MECHANISM.exponent) == pytest.approx(exact, rel=1e-14)
    with localcontext() as context:
        context.prec = 80
        assert MECHANISM.exponent <= Decimal(EPSILON).scaleb(-9) * 10 / Decimal(2).sqrt() / Decimal(PLANE.scale_max)


@given(st.floats(0, 1e6))
def test_charge_covers_radius_and_snapping(radius):
    with localcontext() as context:
        context.prec = 80
        exact = Decimal(EPSILON) / 1000 * (Decimal(radius) + 10 * Decimal(2).sqrt())
    assert exact <= MECHANISM.charge_micro(radius) < exact + 1


@settings(max_examples=200)
@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6), st.integers(-(10**7), 10**7), st.integers(-(10**7), 10**7))
def test_loss_between_two_windows_is_within_the_charge(x, y, dx, dy):
    a, b = (np.array(one(x + shift[0], y + shift[1], 1)) for shift in ((0, 0), (dx, dy)))
    ground_m = math.hypot(dx, dy) / 1000 / PLANE.scale_max
    assert float(MECHANISM.exponent) * np.abs(a - b).sum() * 1e6 <= MECHANISM.charge_micro(ground_m)


def test_statement():
    assert MECHANISM.name == "window-mean/discrete-laplace-per-axis"
    assert MECHANISM.delta == 2 * MECHANISM.noise.delta <= Fraction(1, 1 << 60)
    loss = EPSILON * 1e-9 * (MECHANISM.delta_reach_m + math.sqrt(2) * 10)
    assert float(MECHANISM.delta) * (1 + math.exp(loss)) == pytest.approx(2**-30, rel=1e-3)


@pytest.mark.parametrize("q", [0.1, 0.5, 0.95])
def test_radius_equals_brute_force_over_the_lattice(q):
    mechanism = WindowMean(PLANE, 100, EPSILON)
    z = np.arange(-200, 201)
    mass = np.outer(mechanism.noise.pmf(z), mechanism.noise.pmf(z)).ravel()
    squared = (z[:, None] ** 2 + z[None, :] ** 2).ravel()
    order = np.argsort(squared, kind="stable")
    first = np.searchsorted(np.cumsum(mass[order]), q)
    assert mechanism.radius_m(q) == pytest.approx(math.sqrt(squared[order][first]) * 100 / PLANE.scale_min, rel=1e-12)


def test_same_input_same_noise_in_any_order_and_after_pickling():
    user, cells = np.arange(50, dtype=np.uint64), np.arange(100).reshape(50, 2)
    first, look = MECHANISM.perturb(SECRET, user, 7, cells)
    for found, expected in zip(MECHANISM.perturb(SECRET, user[::-1], 7, cells[::-1]), (first, look), strict=True):
        np.testing.assert_array_equal(found[::-1], expected)
    for found, expected in zip(pickle.loads(pickle.dumps(MECHANISM)).perturb(SECRET, user, 7, cells), (first, look), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert [part.shape for part in MECHANISM.perturb(SECRET, user[:0], 7, cells[:0])] == [(0, 2), (0,)]


def test_everything_in_the_key_changes_the_noise():
    user, cells = np.arange(50, dtype=np.uint64), np.zeros((50, 2), dtype=np.int64)
    other_plane = Plane(Region("bay", -37.0, 179.0, -33.5, -177.0))
    looks = [
        MECHANISM.perturb(SECRET, user, 7, cells),
        MECHANISM.perturb(SECRET[::-1], user, 7, cells),
        MECHANISM.perturb(SECRET, user + np.uint64(1 << 40), 7, cells),
        MECHANISM.perturb(SECRET, user, 8, cells),
        MECHANISM.perturb(SECRET, user, 7, cells + 1),
        WindowMean(PLANE, 10, EPSILON - 1).perturb(SECRET, user, 7, cells),
        WindowMean(PLANE, 11, EPSILON).perturb(SECRET, user, 7, cells),
        WindowMean(other_plane, 10, EPSILON).perturb(SECRET, user, 7, cells),
    ]
    draws = [noisy for noisy, _ in looks]
    draws[4] = draws[4] - 1
    for i, a in enumerate(draws):
        for b in draws[:i]:
            assert np.mean(a == b) < 0.2
    assert len(np.unique([look for _, look in looks])) == len(looks) * len(user)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [((0, 1), "step_m"), ((100_001, 1), "step_m"), ((10, 0), "nano_epsilon"), ((1, 1), "exponent")],
)
def test_illegal_parameters_are_refused(arguments, field):
    with pytest.raises(ValueError, match=field):
        WindowMean(PLANE, *arguments)


def test_illegal_arguments_are_refused():
    with pytest.raises(ValueError, match="radius_m"):
        MECHANISM.charge_micro(-1.0)
    with pytest.raises(ValueError, match="`q`"):
        MECHANISM.radius_m(1.0)
