import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.ledger import Ledger

STEPS = st.lists(st.tuples(st.integers(0, 12), st.lists(st.integers(0, 5), min_size=3, max_size=3)), max_size=60)


@given(window=st.integers(1, 7), limit=st.integers(0, 12), steps=STEPS)
def test_agrees_with_a_brute_force_accountant(window: int, limit: int, steps: list[tuple[int, list[int]]]) -> None:
    slots: dict[int, bytes] = {}
    ledger = Ledger(window, limit, slots, np.zeros(3, np.int64), None)
    paid: list[dict[int, int]] = [{}, {}, {}]
    tick = 0
    for gap, charges in steps:
        tick += gap
        ledger = Ledger(window, limit, slots, ledger.spent.copy(), ledger.tick)  # as after a restart
        ledger.advance(tick)
        granted = ledger.grants(np.arange(3), np.array(charges))
        ledger.record(tick, np.flatnonzero(granted), np.array(charges)[granted])
        for user in range(3):
            spent = sum(charge for then, charge in paid[user].items() if then > tick - window)
            assert granted[user] == (spent + charges[user] <= limit)
            if granted[user]:
                paid[user][tick] = paid[user].get(tick, 0) + charges[user]
            assert ledger.spent[user] == spent + charges[user] * granted[user] <= limit
    assert len(slots) <= window


def test_ticks_never_go_back() -> None:
    ledger = Ledger(3, 1, {}, np.zeros(1, np.int64), 5)
    with pytest.raises(ValueError, match="cannot go back"):
        ledger.advance(4)


def test_earlier_spends_may_exceed_the_limit_and_then_nothing_is_granted() -> None:
    ledger = Ledger(3, 10, {}, np.zeros(1, np.int64), None)
    ledger.advance(7)
    ledger.record(6, np.array([0]), np.array([11]))
    assert not ledger.grants(np.array([0]), np.array([1])).any()
    ledger.advance(9)
    assert ledger.grants(np.array([0]), np.array([10])).all()
