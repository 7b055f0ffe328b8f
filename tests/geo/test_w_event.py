from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geo.privacy.budgets import level_budgets, node_budgets
from geo.privacy.consistency import estimate
from geo.privacy.density_ledger import DensityLedger
from geo.privacy.discrete_laplace import WideDiscreteLaplace
from geo.privacy.dissimilarity import Dissimilarity, error_factor
from geo.privacy.smoothing import smooth
from geo.privacy.tree_counts import TreeCounts
from geo.privacy.w_event import BudgetAbsorption, BudgetDistribution, Decision, Sample, StreamState, Uniform, advance, decide
from tests.geo.trees import regular, with_elsewhere

SECRET = b"a secret for tests, 32 bytes ..."
TREE = with_elsewhere(4, 3)
TESTED = [BudgetDistribution, BudgetAbsorption]
ALL = [Uniform, Sample, *TESTED]
kinds = st.sampled_from(ALL)


def tiles(level=1, neighbours="replace-one", factor=Fraction(1)):
    return Dissimilarity(TREE, level, neighbours, factor)


def run(schedule, ticks, counts, compared=None, state=None):
    """Return the decisions of a stream whose publications are exact, and the last state."""
    compared = compared or tiles()
    state = state or schedule.start()
    decisions = []
    for tick in ticks:
        leaf_counts = counts(tick)
        decision = decide(schedule, compared, SECRET, state, tick, leaf_counts)
        published = TREE.sums(leaf_counts)[compared.tiles] if decision.action == "publish" else None
        state = advance(state, decision, published)
        decisions.append(decision)
    return decisions, state


def window_sums(spent, w):
    """Return the largest sum over w consecutive ticks of a mapping from tick to units."""
    return max((sum(units for k, units in spent.items() if tick - w < k <= tick) for tick in spent), default=0)


def quiet(_):
    return np.full(len(TREE.leaves), 10, np.int64)


def busy(tick):
    return np.full(len(TREE.leaves), 10_000 * (tick % 2), np.int64)


@settings(max_examples=150, deadline=None)
@given(
    kinds,
    st.integers(1, 9),
    st.integers(20, 5_000_000),
    st.lists(st.integers(1, 4), min_size=1, max_size=40),
    st.integers(0, 2**32 - 1),
    st.dictionaries(st.integers(-10, 60), st.integers(0, 3_000_000), max_size=6),
)
def test_no_window_spends_more_than_the_limit_whatever_the_data(kind, w, limit, steps, seed, earlier):
    schedule = kind(limit, w)
    rng = np.random.default_rng(seed)
    ticks = np.cumsum(steps).tolist()
    decisions, _ = run(schedule, ticks, lambda _: rng.integers(0, rng.integers(1, 2000), len(TREE.leaves)))
    assert window_sums({d.tick: d.test + d.publish for d in decisions}, w) <= limit
    # After earlier runs over the same ticks: wherever this run adds anything, the sum is within the limit.
    decisions, _ = run(schedule, ticks, quiet, state=schedule.start(earlier))
    spent = {d.tick: d.test + d.publish for d in decisions}
    for tick in spent:
        for end in range(tick, tick + w):
            inside = [k for k in range(end - w + 1, end + 1)]
            mine = sum(spent.get(k, 0) for k in inside)
            assert mine == 0 or mine + sum(earlier.get(k, 0) for k in inside) <= limit


@settings(max_examples=100, deadline=None)
@given(kinds, st.integers(1, 9), st.integers(20, 5_000_000), st.lists(st.integers(1, 4), min_size=1, max_size=60), st.randoms())
def test_a_schedule_alone_never_asks_for_more_than_the_ledger_has(kind, w, limit, steps, chance):
    schedule = kind(limit, w)
    state, nodes = schedule.start(), np.zeros(5, np.int64)
    for tick in np.cumsum(steps).tolist():
        test, publish = schedule.offer(state, tick)
        assert test + publish <= state.ledger.room(tick)
        publishes = publish > 0 and (not test or chance.random() < 0.5)
        decision = Decision(tick, "publish" if publishes else "republish", test, publish if publishes else 0, None)
        state = advance(state, decision, nodes)


@settings(max_examples=200)
@given(st.integers(1, 8), st.integers(1, 100), st.lists(st.tuples(st.integers(1, 3), st.integers(0, 60)), max_size=60))
def test_the_ledger_grants_what_fits_and_refuses_the_rest(w, limit, steps):
    ledger, spent, tick = DensityLedger.start(limit, w), {}, 0
    for step, units in steps:
        tick += step
        fits = units + sum(paid for then, paid in spent.items() if tick - w < then) <= limit
        assert fits == (units <= ledger.room(tick))
        if fits:
            ledger = ledger.spend(tick, units)
            spent[tick] = units
        else:
            with pytest.raises(ValueError, match="would pass the limit"):
                ledger.spend(tick, units)
    assert window_sums(spent, w) <= limit
    assert len(ledger.spends) <= w


def test_the_ledger_never_goes_back_and_refuses_bad_numbers():
    ledger = DensityLedger.start(10, 3).spend(5, 4)
    for tick in (5, 4):
        with pytest.raises(ValueError, match="`tick`"):
            ledger.spend(tick, 1)
    with pytest.raises(ValueError, match="`units`"):
        ledger.spend(6, -1)
    for limit, w in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="`limit`"):
            DensityLedger.start(limit, w)
    with pytest.raises(ValueError, match="`spends`"):
        DensityLedger.start(10, 3, {1: -1})


def test_uniform_spends_an_equal_part_at_each_tick():
    decisions, _ = run(Uniform(103, 10), range(25), quiet)
    assert {(d.action, d.test, d.publish) for d in decisions} == {("publish", 0, 10)}


def test_sample_publishes_every_w_ticks():
    # tick     0 1 2 3 4 5 6 7
    # publish  x       x
    decisions, _ = run(Sample(100, 4), range(8), quiet)
    assert [d.tick for d in decisions if d.action == "publish"] == [0, 4]
    assert [d.stands for d in decisions] == [0, 0, 0, 0, 4, 4, 4, 4]
    assert all(d.test == 0 for d in decisions)


def test_distribution_halves_what_is_left_and_gets_it_back_after_the_window():
    # w = 4, 800 units: tests 100 each, 400 for publications.
    schedule = BudgetDistribution(800_000_000, 4)
    decisions, _ = run(schedule, range(6), busy)
    assert [d.action for d in decisions] == ["publish"] * 6
    assert [d.test for d in decisions] == [0] + [100_000_000] * 5
    # 400/2, 200/2, 100/2, 50/2, then 200 comes back: (25 + 200)/2, and 100: (112.5 + 100)/2.
    assert [d.publish / 1e6 for d in decisions] == [200, 100, 50, 25, 112.5, 106.25]


def test_absorption_saves_quiet_ticks_and_nullifies_as_many_after_a_publication():
    # w = 6, unit 100.   0 1 2 3 4 5 6 7 8
    # changed            x     x x x   x x
    # units             100    3        2      ticks 4, 5 are nullified, tick 7 may use 6 and 7, and nullifies 8.
    schedule = BudgetAbsorption(1_200_000_000, 6)
    jumps = {0: 0, 1: 0, 2: 0, 3: 1, 4: 2, 5: 3, 6: 1, 7: 2, 8: 5}
    decisions, _ = run(schedule, range(9), lambda tick: np.full(len(TREE.leaves), 10_000 * jumps[tick], np.int64))
    assert [d.action for d in decisions] == [
        "publish",
        "republish",
        "republish",
        "publish",
        "republish",
        "republish",
        "republish",
        "publish",
        "republish",
    ]
    assert [d.publish // 10**8 for d in decisions] == [1, 0, 0, 3, 0, 0, 0, 2, 0]
    assert [d.test // 10**8 for d in decisions] == [0, 1, 1, 1, 0, 0, 1, 1, 0]


@pytest.mark.parametrize("kind", TESTED)
def test_quiet_streams_republish_and_busy_ones_publish(kind):
    schedule = kind(10_000_000, 4)
    calm, _ = run(schedule, range(40), quiet)
    wild, _ = run(schedule, range(40), busy)
    assert sum(d.action == "publish" for d in calm) < 5
    assert sum(d.action == "publish" for d in wild) > 15


@settings(max_examples=60, deadline=None)
@given(kinds, st.integers(1, 6), st.integers(0, 2**32 - 1), st.integers(1, 19))
def test_a_stream_restored_from_bytes_goes_on_as_if_nothing_had_happened(kind, w, seed, cut):
    schedule = kind(1_000_000, w)
    data = np.random.default_rng(seed).integers(0, 300, (20, len(TREE.leaves)))
    whole, end = run(schedule, range(20), data.__getitem__)
    first, middle = run(schedule, range(cut), data.__getitem__)
    restored = StreamState.load(middle.dump())
    assert restored == middle
    assert restored.dump() == middle.dump()
    second, last = run(schedule, range(cut, 20), data.__getitem__, state=restored)
    assert first + second == whole
    assert last == end


@pytest.mark.parametrize("kind", ALL)
def test_ticks_left_out_are_ticks_that_spent_nothing(kind):
    schedule = kind(1_000_000, 4)
    _, state = run(schedule, range(5), quiet)
    decision = decide(schedule, tiles(), SECRET, state, 5 + 10 * 4, quiet(0))
    assert decision.test + decision.publish <= 1_000_000
    later = advance(state, decision, np.zeros(len(tiles().tiles), np.int64) if decision.action == "publish" else None)
    assert len(later.ledger.spends) <= 1
    with pytest.raises(ValueError, match="`tick`"):
        decide(schedule, tiles(), SECRET, later, decision.tick, quiet(0))


def test_a_long_silence_is_absorbed_up_to_the_window():
    schedule = BudgetAbsorption(1_200_000, 6)
    _, state = run(schedule, [0], quiet)
    assert schedule.offer(state, 3) == (100_000, 300_000)
    assert schedule.offer(state, 1000) == (100_000, 600_000)


def test_earlier_spends_are_honoured_by_not_publishing():
    schedule = Uniform(100, 5)
    decisions, _ = run(schedule, range(12), quiet, state=schedule.start({3: 95}))
    assert [d.action for d in decisions] == ["withhold"] * 8 + ["publish"] * 4
    assert all(d.stands is None for d in decisions[:8])


def test_advance_refuses_what_the_ledger_refuses():
    state = Uniform(100, 5).start()
    with pytest.raises(ValueError, match="would pass the limit"):
        advance(state, Decision(1, "publish", 0, 101, 1), np.zeros(5, np.int64))
    with pytest.raises(ValueError, match="`tiles`"):
        advance(state, Decision(1, "publish", 0, 10, 1))


def test_limits_too_small_for_the_window_are_refused():
    for kind, limit in ((Uniform, 9), (BudgetDistribution, 19), (BudgetAbsorption, 19), (Sample, 0)):
        with pytest.raises(ValueError, match="`limit`"):
            kind(limit, 10)
    with pytest.raises(ValueError, match="`window_ticks`"):
        Uniform(10, 0)


def test_tiles_hold_each_leaf_once():
    tree = with_elsewhere(4, 3)
    for level in range(3):
        nodes = Dissimilarity(tree, level, "add-remove").tiles
        counts = np.arange(1, len(tree.leaves) + 1)
        assert tree.sums(counts)[nodes].sum() == counts.sum()
    assert len(Dissimilarity(tree, 1, "add-remove").tiles) == 5
    assert len(Dissimilarity(tree, 2, "add-remove").tiles) == 13


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["add-remove", "replace-one"]), st.integers(0, 2))
def test_one_user_changes_the_distance_by_at_most_its_sensitivity(seed, neighbours, level):
    compared = tiles(level, neighbours)
    rng = np.random.default_rng(seed)
    counts, last = rng.integers(0, 5, len(TREE.leaves)), rng.integers(-3, 20, len(compared.tiles))
    a, b = rng.integers(0, len(TREE.leaves), 2)
    moved = counts.copy()
    moved[a] += 1
    if neighbours == "replace-one":
        counts[b] += 1
    distances = [np.abs(TREE.sums(c)[compared.tiles] - last).sum() for c in (counts, moved)]
    assert abs(int(distances[0]) - int(distances[1])) <= compared.sensitivity


def test_the_answer_compares_exactly_and_repeats():
    compared = tiles(1, "add-remove", Fraction(3, 2))
    last = TREE.sums(quiet(0))[compared.tiles].tolist()
    # An exponent of 50 leaves no noise: D > f d Δ / ε = 1.5 · 5 · 1 / 0.5 = 15.
    for extra, expected in ((15, False), (16, True)):
        counts = quiet(0)
        counts[0] += extra
        answers = {compared.changed(SECRET, 1, counts, last, 50_000_000, 500_000) for _ in range(3)}
        assert answers == {expected}


def test_the_answers_noise_has_the_claimed_distribution_and_depends_on_everything():
    compared = tiles(1, "replace-one")
    last = TREE.sums(quiet(0))[compared.tiles].tolist()
    # D = 0, so the answer is Z > f d Δ / ε_publish = 20: P = 1 - cdf(20).
    expected = 1 - float(WideDiscreteLaplace(Decimal("0.05")).cdf(20))
    answers = [compared.changed(SECRET, tick, quiet(0), last, 100_000, 500_000) for tick in range(3000)]
    assert np.mean(answers) == pytest.approx(expected, abs=5 * (expected / 3000) ** 0.5)
    shifted = [compared.changed(SECRET, tick, quiet(0), last, 100_000, 500_000, b"other") for tick in range(3000)]
    assert abs(np.corrcoef(answers, shifted)[0, 1]) < 0.1
    assert compared.delta(100_000) < Fraction(1, 1 << 99)


def test_error_factor_is_one_for_a_flat_tree_and_hardly_depends_on_the_budget():
    tree = regular(30)
    flat = TreeCounts(tree, node_budgets(tree, level_budgets(tree, 100_000, workload=[0, 1])), "add-remove")
    assert error_factor(flat, tree.leaves) == pytest.approx(1, rel=0.01)
    factors = []
    for total in (20_000, 200_000):
        made = TreeCounts(TREE, node_budgets(TREE, level_budgets(TREE, total, exact_root=True)), "replace-one")
        factors.append(float(error_factor(made, tiles().tiles)))
    assert factors[0] == pytest.approx(factors[1], rel=0.02)


def test_illegal_tests_are_refused():
    with pytest.raises(ValueError, match="`level`"):
        tiles(3)
    with pytest.raises(ValueError, match="`neighbours`"):
        tiles(1, "any")
    with pytest.raises(ValueError, match="`factor`"):
        tiles(1, "add-remove", Fraction(0))
    with pytest.raises(ValueError, match="`last`"):
        tiles().changed(SECRET, 1, quiet(0), [1, 2], 1000, 1000)
    with pytest.raises(ValueError, match="`publish_micro`"):
        tiles().changed(SECRET, 1, quiet(0), [1] * 5, 1000, 0)
    with pytest.raises(ValueError, match="`exponent`"):
        tiles().changed(SECRET, 1, quiet(0), [1] * 5, 0, 1000)


def test_smoothing_lowers_the_error_of_slow_streams_and_follows_fast_ones():
    rng = np.random.default_rng(5)
    noise = np.full(len(TREE), 400.0)
    noise[0] = 0.0
    for drift, gain in ((0.5, 0.4), (200.0, 1.05)):
        level, raw, kept = None, [], []
        truth = rng.integers(200, 400, len(TREE.leaves)).astype(float)
        for tick in range(300):
            truth = np.maximum(truth + rng.normal(0, drift, len(truth)), 0)
            counts = TREE.sums(np.rint(truth).astype(np.int64))
            noisy = counts + np.rint(rng.normal(0, 20, len(counts))).astype(np.int64) * (noise > 0)
            level = smooth(level, noisy, noise)
            if tick > 50:
                raw.append(np.mean((estimate(TREE, noisy, noise).unbiased - counts)[1:] ** 2))
                kept.append(np.mean((estimate(TREE, level.value, level.variance).unbiased - counts)[1:] ** 2))
            assert level.value[0] == counts[0]
        assert np.mean(kept) < gain * np.mean(raw)


def test_smoothing_keeps_unmeasured_nodes_unmeasured():
    noise = np.array([0.0, np.inf, 2.0])
    level = smooth(smooth(None, np.array([4.0, 0.0, 4.0]), noise), np.array([5.0, 0.0, 6.0]), noise)
    assert level.variance[0] == 0
    assert np.isinf(level.variance[1])
    assert 4 < level.value[2] <= 6
