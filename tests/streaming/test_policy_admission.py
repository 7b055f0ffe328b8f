"""Which records of the topic `policies` change what, from which tick on: a function of the log, whatever a record holds."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from streaming.audiences import Audiences, deployment_of
from streaming.policy import Policy, parse_edit, parse_policy
from streaming.policy_admission import MAX_EDIT_BYTES, MAX_POLICY_BYTES, Admission, Admitted
from streaming.policy_log import DEPLOYMENT, Entry, PolicyReason, Version, edit_record, with_entry
from streaming.shard import Protector, ShardState, tick_grid
from tests.streaming.test_audiences import SECRET, THREE, TICK, config, fixes
from tests.streaming.test_policy_log import perturbed, policy, record

EPOCH = 10
SETTINGS = config(THREE[:1], privacy={"epoch_ticks": EPOCH})
GRID = tick_grid(SETTINGS)
FITS = deployment_of(SETTINGS, None)
NOW = TICK * 60_000
NEXT = (TICK // EPOCH + 1) * EPOCH
OPEN = parse_policy(policy(1, user_edits=True), FITS)


class Memory(dict[str, list[Entry]]):
    put = dict.__setitem__


def admission(first: Policy | None = None, memory: Memory | None = None) -> Admission:
    return Admission(SETTINGS, first, FITS, Memory() if memory is None else memory)


def judge(value: bytes | None, log_ms: int = 0, first: Policy | None = None) -> Any:
    return admission(first).admit(value, log_ms)


def edit(user: str, version: int, *rules: dict[str, Any], **more: Any) -> bytes:
    return orjson.dumps({"wayveil": "policy-edit", "user": user, "version": version, "rule": list(rules), **more})


def policy_record(**document: Any) -> bytes:
    return orjson.dumps({"wayveil": "policy", "from_tick": TICK, "policy": document})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "policy_malformed"),
        (b"", "policy_malformed"),
        (b"{", "policy_malformed"),
        (b"[]", "policy_malformed"),
        (b"\xff\xfe", "policy_malformed"),
        (b'"' + b"x" * 10 + b"\xff" + b'"', "policy_malformed"),
        (b"[" * 100_000 + b"]" * 100_000, "policy_malformed"),
        (b'{"wayveil":"policy","from_tick":1e999,"policy":{}}', "policy_malformed"),
        (b'{"wayveil":"policy","from_tick":123456789012345678901234567890,"policy":{}}', "policy_malformed"),
        (orjson.dumps({"wayveil": "policy", "from_tick": True, "policy": policy(1)}), "policy_malformed"),
        (orjson.dumps({"wayveil": "policy", "from_tick": 1.5, "policy": policy(1)}), "policy_malformed"),
        (orjson.dumps({"wayveil": "policy", "from_tick": TICK, "policy": policy(1), "more": 1}), "policy_malformed"),
        (policy_record(**policy(1), users={"u": {}}, groups={"g": {"users": ["x" * MAX_POLICY_BYTES]}}), "policy_malformed"),
        (policy_record(**policy(1, radius_m=1)), "policy_invalid"),
        (policy_record(version=1, rule=[{}]), "policy_invalid"),
        (policy_record(version=1 << 60), "policy_invalid"),
        (policy_record(version=1, preferences={"p": {"model": "full-table", "table": {"*": {"*": {"*": {"*": 7}}}}}}), "policy_invalid"),
        (b'{"wayveil":"policy","from_tick":1,"policy":{"version":1,"rule":' + b"[" * 900 + b"]" * 900 + b"}}", "policy_invalid"),
        (b'{"wayveil":"policy","from_tick":1,"policy":{"version":18446744073709551615}}', "policy_invalid"),
        (b'{"wayveil":"policy","from_tick":1,"policy":{"version":1,"max_radius_m":1e308}}', "policy_invalid"),
        (orjson.dumps({"wayveil": "policy", "from_tick": -(1 << 62), "policy": policy(1)}), "policy_too_late"),
        (orjson.dumps({"wayveil": "policy", "from_tick": (1 << 64) - 1, "policy": policy(1)}), "policy_too_late"),
    ],
)
def test_a_bad_record_changes_nothing(value: bytes | None, reason: str) -> None:
    assert judge(value) == reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (orjson.dumps({"wayveil": "policy-edit", "version": 1, "rule": []}), "policy_malformed"),
        (orjson.dumps({"wayveil": "policy-edit", "user": 7, "version": 1, "rule": []}), "policy_malformed"),
        (orjson.dumps({"wayveil": "policy-edit", "user": "ann", "version": 1}), "policy_malformed"),
        (edit("ann", 1, *[perturbed(400)] * 1000), "policy_malformed"),
        (edit("", 1), "policy_invalid"),
        (edit("ann", 1, time_zone="Moon"), "policy_invalid"),
        (edit("ann", 1, from_tick=TICK), "policy_invalid"),
        (edit("ann", 1, perturbed(400, subject="user:bob")), "policy_invalid"),
        (edit("ann", 1, perturbed(400, audience="nobody")), "policy_invalid"),
        (edit("ann", 1, perturbed(400, place="zone:a")), "policy_invalid"),
        (edit("ann", 1, perturbed(1e7)), "policy_invalid"),
        (edit("ann", 1, {"audience": "friends", "level": "perturbed", "preference": "p"}), "policy_invalid"),
        (edit("ann", 1, perturbed(400, categories={"default": {"deep": "er"}})), "policy_invalid"),
    ],
)
def test_a_bad_edit_changes_nothing(value: bytes, reason: str) -> None:
    assert judge(value, first=OPEN) == reason


def test_heartbeats_say_nothing() -> None:
    assert judge(b'{"wayveil":"heartbeat"}') is None


def test_versions_grow_and_come_in_time() -> None:
    third = parse_policy(policy(3), FITS)
    assert judge(record(4 + 1_000_000, TICK), first=third) == "policy_version"
    assert judge(record(3 + 1_000_000, TICK), first=third).number == 3 + 1_000_000
    assert judge(record(3, TICK), first=third) == "policy_version"
    assert judge(record(4, TICK), log_ms=NOW, first=third) == "policy_too_late"
    assert judge(record(4, TICK), log_ms=NOW - 1, first=third)[:3] == (DEPLOYMENT, 4, TICK)
    one = admission(third)
    assert isinstance(one.admit(record(9, NEXT + 70), NOW), Admitted)
    assert one.admit(record(9, NEXT + 70), NOW) == one.admit(record(8, NEXT), NOW) == "policy_version"
    assert one.last_version() == 9


def test_an_edit_needs_a_policy_that_permits_it_where_it_begins() -> None:
    assert judge(edit("ann", 1), NOW) == judge(edit("ann", 1), NOW, parse_policy(policy(1), FITS)) == "policy_edits_off"
    one = admission(OPEN)
    one.admit(record(2, NEXT), NOW)
    assert one.admit(edit("ann", 1), NOW) == "policy_edits_off"
    assert isinstance(one.admit(edit("ann", 1), NOW - EPOCH * 60_000), Admitted)


def test_an_edit_holds_from_the_next_public_epoch() -> None:
    for log_ms in (NOW, NOW + 1, NEXT * 60_000 - 1):
        assert judge(edit("ann", 5, perturbed(400)), log_ms, OPEN)[:3] == ("user:ann", 5, NEXT)
    assert judge(edit("ann", 5), NEXT * 60_000, OPEN).from_tick == NEXT + EPOCH


def test_one_edit_a_user_and_epoch() -> None:
    one = admission(OPEN)
    assert one.admit(edit("ann", 1, perturbed(1e7)), NOW) == "policy_invalid"
    assert isinstance(one.admit(edit("ann", 1), NOW), Admitted)
    assert one.admit(edit("ann", 2), NOW + 1) == "policy_rate"
    assert one.admit(edit("ann", 1), NOW + EPOCH * 60_000) == "policy_version"
    assert isinstance(one.admit(edit("bob", 1), NOW + 1), Admitted)
    assert isinstance(one.admit(edit("ann", 2), NOW + EPOCH * 60_000), Admitted)


def test_an_edit_fits_the_version_that_holds_where_it_begins() -> None:
    one = admission(OPEN)
    night = {"night": {"from": "22:00", "to": "06:00"}}
    at_night = edit("ann", 1, perturbed(400, time="night"))
    assert one.admit(at_night, NOW) == "policy_invalid"
    one.admit(record(2, NEXT + 1, user_edits=True, calendars=night), NOW)
    assert one.admit(at_night, NOW) == "policy_invalid"
    assert one.admit(at_night, NEXT * 60_000).from_tick == NEXT + EPOCH


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 64) - 1), st.floats(), st.text(max_size=3)),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
SECTIONS = ("version", "time_zone", "max_radius_m", "user_edits", "groups", "calendars", "zones", "preferences", "rule")
KEYS = ("subject", "audience", "radius_m", "every", "place", "form")
paths = st.sampled_from(
    [("from_tick",), ("policy",), *(("policy", key) for key in SECTIONS), *(("policy", "rule", 0, key) for key in KEYS)]
)


@hypothesis_settings(max_examples=300, deadline=None)
@given(paths, values)
def test_whatever_a_record_holds_it_is_judged_and_what_is_admitted_is_put_in_force(path: tuple[Any, ...], value: object) -> None:
    document: Any = {"wayveil": "policy", "from_tick": TICK, "policy": policy(2, user_edits=True)}
    *before, last = path
    at = document
    for key in before:
        at = at[key]
    at[last] = value
    found = judge(orjson.dumps(document), NOW - 1)
    if not isinstance(found, Admitted):
        assert found in vars(PolicyReason).values()
        return
    job = Protector(SETTINGS, SECRET)
    job.enforce({DEPLOYMENT: [found[1:]]})
    tick = found.from_tick if found.from_tick < TICK + 10**6 else TICK
    job.close(ShardState.empty({}), 0, tick, fixes(SETTINGS, tick, {"ann": (60.5, 24.5)}))


@hypothesis_settings(max_examples=200, deadline=None)
@given(st.sampled_from(["user", "version", "rule", "time_zone", "more"]), values, st.binary(max_size=8))
def test_whatever_an_edit_holds_it_is_judged(key: str, value: object, garbage: bytes) -> None:
    document = {"wayveil": "policy-edit", "user": "ann", "version": 1, "rule": [perturbed(400)], key: value}
    for found in (judge(orjson.dumps(document), NOW, OPEN), judge(orjson.dumps(document) + garbage, NOW, OPEN)):
        assert isinstance(found, Admitted) or found in vars(PolicyReason).values()


def test_the_coarsest_radius_of_a_policy_can_be_drawn_and_a_coarser_one_is_refused() -> None:
    coarsest = FITS.ladder[-1]
    job = Protector(SETTINGS, SECRET)
    found = judge(record(2, TICK, coarsest), NOW - 1)
    job.enforce({DEPLOYMENT: [found[1:]]})
    assert "traces.one" in job.close(ShardState.empty({}), 0, TICK, fixes(SETTINGS, TICK, {"ann": (60.5, 24.5)}))
    assert Audiences(SETTINGS, SECRET).statement(coarsest).r95_m > coarsest
    assert judge(policy_record(**policy(2, coarsest * 1.001)), NOW - 1) == "policy_invalid"
    assert judge(edit("ann", 1, perturbed(coarsest * 1.001)), NOW, OPEN) == "policy_invalid"


# What is admitted, once more and slowly: every record reads all those before it again.

LOG = st.lists(
    st.tuples(
        st.integers(-30, 90),
        st.one_of(
            st.tuples(st.just(""), st.integers(1, 5), st.integers(TICK, TICK + 60), st.booleans(), st.booleans()),
            st.tuples(st.sampled_from(["ann", "bob"]), st.integers(1, 4), st.sampled_from(["plain", "night", "bad"])),
        ),
    ),
    max_size=10,
)
NIGHT = {"calendars": {"night": {"from": "22:00", "to": "06:00"}}}


def value_of(what: tuple[Any, ...]) -> bytes:
    if what[0] == "":
        _, version, start, permits, night = what
        return record(version, start, 100, user_edits=permits, **(NIGHT if night else {}))
    user, version, kind = what
    rule = {"plain": perturbed(400), "night": perturbed(400, time="night"), "bad": perturbed(1)}[kind]
    return edit(user, version, rule)


def by_hand(log: list[tuple[int, tuple[Any, ...]]]) -> Iterator[tuple[str, int, int] | str]:
    done: list[tuple[tuple[Any, ...], int]] = []
    for number, (_, what) in enumerate(log):
        clock = NOW + 60_000 * max(minute for minute, _ in log[: number + 1])
        if what[0] == "":
            _, version, start, *_ = what
            if any(version <= other[1] for other, _ in done if other[0] == "") or version <= 1:
                yield "policy_version"
            elif start * 60_000 <= clock:
                yield "policy_too_late"
            else:
                done.append((what, start))
                yield DEPLOYMENT, version, start
            continue
        user, version, kind = what
        start = next(tick for tick in range(clock // 60_000 + 1, clock // 60_000 + EPOCH + 1) if tick % EPOCH == 0)
        holding = max((other for other, begins in done if other[0] == "" and begins <= start), default=("", 1, 0, True, False))
        mine = [(other[1], begins) for other, begins in done if other[0] == user]
        if not holding[3]:
            yield "policy_edits_off"
        elif any(version <= other for other, _ in mine):
            yield "policy_version"
        elif any(begins == start for _, begins in mine):
            yield "policy_rate"
        elif kind == "bad" or (kind == "night" and not holding[4]):
            yield "policy_invalid"
        else:
            done.append((what, start))
            yield f"user:{user}", version, start


@hypothesis_settings(max_examples=150, deadline=None)
@given(LOG)
def test_admission_is_what_a_slow_reading_of_the_rules_gives(log: list[tuple[int, tuple[Any, ...]]]) -> None:
    memory, clock, found = Memory(), 0, []
    state: dict[str, list[Entry]] = {}
    for minute, what in log:
        clock = max(clock, NOW + 60_000 * minute)
        # Each record finds a job that has just been restored.
        verdict = admission(OPEN, memory).admit(value_of(what), clock)
        found.append(verdict[:3] if isinstance(verdict, Admitted) else verdict)
        if isinstance(verdict, Admitted):
            state[verdict.scope] = with_entry(state.get(verdict.scope, []), verdict[1:], 0)
    assert found == list(by_hand(log))
    job = Protector(SETTINGS, SECRET, policy=OPEN)
    job.enforce(state)
    assert all(job.audiences(TICK + 10 * number) for number in range(8))
    assert all(len(held) <= 2 for scope, held in memory.items() if scope != DEPLOYMENT)


def test_what_an_edit_says_stays_out_of_the_verdict_and_small() -> None:
    one = edit_record(parse_edit({"user": "ann", "version": 1, "rule": [perturbed(400 + i, time="*") for i in range(100)]}))
    assert len(one) < MAX_EDIT_BYTES
    assert "ann" not in str(judge(edit("ann", 1, perturbed(1)), NOW, OPEN))
    assert Version.load(record(3, TICK)).from_tick == TICK
