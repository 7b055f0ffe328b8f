import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st

from streaming.charges import CHARGE, CHARGES_A_LINE, charge_lines, distinct_charges, read_charges
from streaming.earlier import EarlierSpends
from streaming.ledger import Ledger

USERS = np.array([3, 14, 2**64 - 1, 26], np.uint64)
NEVER_SEEN = np.array([4], np.uint64)

spends = st.lists(st.tuples(st.integers(0, 2), st.integers(90, 120), st.integers(0, 3), st.integers(1, 9)), max_size=40)


def charged(spent: list[tuple[int, int, int, int]]) -> np.ndarray:
    return np.array([(USERS[user], tick, look, charge) for user, tick, look, charge in spent], CHARGE)


def distinct(spent: list[tuple[int, int, int, int]]) -> dict[tuple[int, int, int], int]:
    highest: dict[tuple[int, int, int], int] = {}
    for user, tick, look, charge in spent:
        highest[user, tick, look] = max(charge, highest.get((user, tick, look), 0))
    return highest


@given(spends, st.integers(80, 130), st.integers(0, 40))
def test_sums_between_ticks_equal_a_slow_count(spent: list[tuple[int, int, int, int]], after: int, length: int) -> None:
    looks = distinct(spent).items()
    slow = [sum(c for (u, t, _), c in looks if u == user and after < t <= after + length) for user in range(len(USERS))]
    earlier = EarlierSpends.of([charged(spent[:7]), charged(spent[7:])])
    assert earlier.between(after, after + length, USERS).tolist() == slow
    assert earlier.between(after, after + length, NEVER_SEEN).tolist() == [0]


@given(spends)
def test_what_is_entered_is_what_was_spent(spent: list[tuple[int, int, int, int]]) -> None:
    ledger, earlier = Ledger(50, 10**6, {}, np.zeros(len(USERS), np.int64), None), EarlierSpends.of([charged(spent)])
    ledger.advance(125)
    earlier.enter(ledger, 95, 125, np.arange(len(USERS)), USERS)
    assert ledger.spent.tolist() == earlier.between(95, 125, USERS).tolist()
    ledger.advance(160)  # tick 110 is the last one to have left
    assert ledger.spent.tolist() == earlier.between(110, 125, USERS).tolist()


def test_charges_survive_the_topic() -> None:
    charges = np.zeros(CHARGES_A_LINE + 3, CHARGE)
    charges["user"], charges["look"] = np.arange(len(charges)), 7
    lines = charge_lines(5, charges)
    assert [line.split("\t")[0] for line in lines] == ["5", "5"]
    parts = [read_charges(orjson.loads(line.split("\t")[1])) for line in lines]
    np.testing.assert_array_equal(np.concatenate(parts), charges)
    assert len(distinct_charges([*parts, *parts])) == len(charges)
    assert max(map(len, lines)) < 300_000
