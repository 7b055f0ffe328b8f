import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streaming.earlier import EarlierSpends
from streaming.ledger import Ledger
from streaming.pseudonyms import Pseudonyms

EPOCH = 5
NAMES = Pseudonyms(b"k" * 32, "default", EPOCH)
USERS = np.array([3, 14, 159, 26], np.uint64)

spends = st.lists(st.tuples(st.integers(0, 2), st.integers(90, 120), st.integers(1, 9)), max_size=40)


def published(charges: list[tuple[int, int, int]]) -> EarlierSpends:
    return EarlierSpends.of((NAMES.of(USERS[user : user + 1], tick)[0], tick, charge) for user, tick, charge in charges)


@given(spends, st.integers(80, 130), st.integers(0, 40))
def test_sums_between_ticks_equal_a_slow_count(charges: list[tuple[int, int, int]], after: int, length: int) -> None:
    slow = [sum(c for u, t, c in charges if u == user and after < t <= after + length) for user in range(len(USERS))]
    assert published(charges).between(NAMES, after, after + length, USERS).tolist() == slow


@given(spends)
def test_what_is_entered_is_what_was_spent(charges: list[tuple[int, int, int]]) -> None:
    ledger = Ledger(50, 10**6, {}, np.zeros(len(USERS), np.int64), None)
    ledger.advance(125)
    published(charges).enter(ledger, NAMES, 95, 125, np.arange(len(USERS)), USERS)
    assert ledger.spent.tolist() == published(charges).between(NAMES, 95, 125, USERS).tolist()
    ledger.advance(160)  # tick 110 is the last one to have left
    assert ledger.spent.tolist() == published(charges).between(NAMES, 110, 125, USERS).tolist()
