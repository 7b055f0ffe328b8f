from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from geo.tree import Tree
from streaming.audit import Audit, audit, audit_charges, audit_density, highest_window_sum
from streaming.charges import CHARGE
from streaming.pseudonyms import Pseudonyms

EPOCH, WINDOW, LIMIT = 4, 3, 20
NAMES = Pseudonyms(b"k" * 32, "default", EPOCH)
USERS = np.array([11, 22], np.uint64)


def released(user: int, tick: int, charge: int = 10, look: str = "1") -> dict[str, Any]:
    name = NAMES.of(np.array([user], np.uint64), tick)[0]
    return {"user": name, "tick": tick, "status": "released", "lat": 60.0, "lon": 24.0, "look": look, "epsilon_micro": charge}


def entry(tick: int, count: int, charge: int = 10, absent: int = 0) -> dict[str, Any]:
    return {"tick": tick, "released": count, "absent": absent, "withheld": 0, "epsilon_micro": count * charge}


def paid(*charges: tuple[int, int, int]) -> Any:
    return np.array([(user, tick, look, charge) for look, (user, tick, charge) in enumerate(charges)], CHARGE)


def stated(row: dict[str, Any]) -> bool:
    return row.get("radius_m", 200) == 200


def run(traces: list[dict[str, Any]], entries: list[dict[str, Any]], users: Any = USERS, charges: Any = None) -> Audit:
    return audit(traces, entries, users, NAMES, paid() if charges is None else charges, stated, WINDOW, LIMIT)


def test_what_was_not_charged_is_seen() -> None:
    rows, entries = [released(11, 1), released(11, 2), released(22, 2)], [entry(1, 1), entry(2, 2)]
    assert run(rows, entries, charges=paid((11, 1, 10), (11, 2, 10), (22, 2, 15))).unpaid == 0
    assert run(rows, entries, charges=paid((11, 1, 10), (11, 2, 9), (22, 1, 10))).unpaid == 2
    twice = [released(11, 1), released(11, 1, look="2", charge=11)]
    assert run(twice, [entry(1, 2)], charges=paid((11, 1, 10))).unpaid == 1
    assert run(twice, [entry(1, 2)], charges=paid((11, 1, 11))).unpaid == 0


def test_a_loss_that_does_not_belong_to_its_radius_is_seen() -> None:
    assert run([{**released(11, 1), "radius_m": 1}, released(11, 2)], [entry(1, 1), entry(2, 1)]).misstated == 1


def test_entries_may_say_more_than_rows_cost_and_never_less() -> None:
    assert run([released(11, 5)], [entry(5, 1, charge=20)]).unbalanced == ()
    assert run([released(11, 5)], [entry(5, 1, charge=9)]).unbalanced == (5,)


def test_charges_of_all_audiences_are_added_up_by_user() -> None:
    assert audit_charges(paid((11, 1, 10), (11, 3, 10), (22, 3, 15), (11, 4, 1)), WINDOW, LIMIT) == (20, 0)
    assert audit_charges(paid((11, 1, 10), (11, 3, 11), (22, 3, 15)), WINDOW, LIMIT) == (21, 1)
    assert audit_charges(paid(), WINDOW, LIMIT) == (0, 0)


def test_sums_reach_across_epochs() -> None:
    across = [released(11, tick) for tick in (2, 3, 4)]  # the pseudonym changes at tick 4
    found = run(across, [entry(tick, 1) for tick in (2, 3, 4)])
    assert (found.highest_micro, found.over, found.users, found.strangers, found.unbalanced) == (30, 1, 1, 0, ())
    blind = run(across, [entry(tick, 1) for tick in (2, 3, 4)], users=USERS[1:])
    assert (blind.highest_micro, blind.over, blind.strangers) == (20, 0, 2)


def test_a_repeat_spends_nothing_and_another_look_does() -> None:
    repeat = run([released(11, 1)] * 2, [entry(1, 1)] * 2)
    assert (repeat.rows, repeat.releases, repeat.highest_micro, repeat.unbalanced) == (2, 1, 10, ())
    same_place = run([released(11, 1), released(11, 1, look="2")], [entry(1, 1)] * 2)
    assert (same_place.releases, same_place.highest_micro) == (2, 20)


def test_a_row_too_many_or_too_few_is_seen() -> None:
    absent = {"user": "x", "tick": 6, "status": "absent"}
    assert run([released(11, 5), absent], [entry(5, 1), entry(6, 0, absent=1)]).unbalanced == ()
    assert run([released(11, 5), absent], [entry(5, 1)]).unbalanced == (6,)
    assert run([], [entry(7, 1)]).unbalanced == (7,)
    assert run([released(11, 5, charge=11)], [entry(5, 1)]).unbalanced == (5,)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(1, 9)), max_size=40), st.integers(1, 12))
def test_window_sums_equal_a_slow_count(charges: list[tuple[int, int, int]], window: int) -> None:
    owner, tick, charge = (np.array([row[i] for row in charges], np.int64) for i in range(3))
    slow = [sum(c for o, t, c in charges if o == own and at - window < t <= at) for own, at, _ in charges]
    assert highest_window_sum(owner, tick, charge, window).tolist() == slow


def record(tick: int, publish: int, look: str = "a", count: tuple[int, ...] | None = (3, 1, 2), tree: str = "t") -> dict[str, Any]:
    charge = {"test": 1, "publish": publish}
    return {"tick": tick, "look": look, "tree": tree, "charge": charge, "count": None if count is None else list(count)}


def test_density_is_charged_once_a_look_and_over_every_window() -> None:
    tree = Tree(np.array([-1, 0, 0]))
    found = audit_density([record(1, 4), record(1, 4), record(2, 4), record(2, 4, look="b"), record(4, 9)], tree, "t", 3, 15)
    assert (found.records, found.looks, found.highest, found.over) == (5, 4, 20, (4,))
    assert audit_density([], tree, "t", 3, 15).highest == 0


def test_density_that_does_not_add_up_is_seen() -> None:
    tree = Tree(np.array([-1, 0, 0]))
    rows = [
        record(1, 1),
        record(2, 1, count=(3, 1, 1)),
        record(3, 1, count=(0, -1, 1)),
        record(4, 1, count=(3, 3)),
        record(5, 1, count=None),
    ]
    found = audit_density([*rows, record(6, 1, count=(9, 9, 9), tree="other")], tree, "t", 3, 15)
    assert found.uneven == (2, 3, 4)
    assert found.foreign == 1
