"""Which records of the topic `policies` change what, from which tick on; the same live and in a replay."""

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.policy import parse_policy
from streaming.policy_log import Version, admit_version, in_force, rejected_policy_line
from streaming.shard import Protector, ShardState, tick_grid
from tests.streaming.test_audiences import SECRET, THREE, TICK, config, documents, fixes

SETTINGS = config(THREE[:1])
GRID = tick_grid(SETTINGS)
FITS = Protector(SETTINGS, SECRET).audiences(TICK).deployment


def policy(version: int, radius_m: float = 100, **more: Any) -> dict[str, Any]:
    rule = {"subject": "default", "audience": "friends", "level": "perturbed", "radius_m": radius_m}
    return {"version": version, "rule": [rule], **more}


def record(version: int, from_tick: int, radius_m: float = 100) -> bytes:
    return Version(from_tick, parse_policy(policy(version, radius_m), FITS)).dump()


def judge(value: bytes | None, log_ms: int = 0, last: int = 0) -> Any:
    return admit_version(value, log_ms, last, GRID, FITS)


def test_a_version_survives_its_record() -> None:
    found = judge(record(3, TICK))
    assert (found.from_tick, found.policy) == (TICK, parse_policy(policy(3), FITS))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "policy_malformed"),
        (b"", "policy_malformed"),
        (b"{", "policy_malformed"),
        (b"[]", "policy_malformed"),
        (orjson.dumps({"wayveil": "policy", "from_tick": True, "policy": policy(1)}), "policy_malformed"),
        (orjson.dumps({"wayveil": "policy", "from_tick": 1.5, "policy": policy(1)}), "policy_malformed"),
        (orjson.dumps({"wayveil": "policy", "from_tick": TICK, "policy": policy(1), "more": 1}), "policy_malformed"),
        (orjson.dumps({"wayveil": "policy", "from_tick": TICK, "policy": policy(1, radius_m=1)}), "policy_invalid"),
        (orjson.dumps({"wayveil": "policy", "from_tick": TICK, "policy": {"version": 1, "rule": [{}]}}), "policy_invalid"),
    ],
)
def test_a_bad_record_changes_nothing(value: bytes | None, reason: str) -> None:
    assert judge(value) == reason


def test_heartbeats_say_nothing() -> None:
    assert judge(b'{"wayveil":"heartbeat"}') is None


def test_versions_grow_and_come_in_time() -> None:
    assert judge(record(3, TICK), last=3) == "policy_version"
    assert judge(record(3, TICK), log_ms=TICK * 60_000) == "policy_too_late"
    assert judge(record(3, TICK), log_ms=TICK * 60_000 - 1).from_tick == TICK


def test_a_rejected_record_is_named_and_not_quoted() -> None:
    key, row = rejected_policy_line("policy_invalid", "policies", 7, 9).split("\t")
    assert key == "policy-7"
    assert orjson.loads(row) == {"v": 1, "reason": "policy_invalid", "topic": "policies", "partition": 0, "offset": 7, "log_ms": 9}


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 9)), max_size=8, unique_by=lambda pair: pair[0]), st.integers(0, 10))
def test_the_highest_version_that_has_begun_holds(found: list[tuple[int, int]], tick: int) -> None:
    versions = [Version(start, parse_policy(policy(number), FITS)) for number, start in found]
    holding = in_force(versions, tick)
    begun = [number for number, start in found if start <= tick]
    assert (holding.policy.version if holding else 0) == max(begun, default=0)


def test_a_change_takes_effect_at_its_tick_and_places_are_classed_anew() -> None:
    job, state = Protector(SETTINGS, SECRET), ShardState.empty({})
    job.enforce({2: record(2, TICK + 2, 400), 5: record(5, TICK + 4, 800), 3: record(3, TICK + 4, 1600)})
    radii = []
    for tick in range(TICK, TICK + 6):
        out = job.close(state, 0, tick, fixes(SETTINGS, tick, {"ann": (60.5, 24.5)}))
        (row,) = documents(out, "traces.one")
        radii.append((row["radius_m"], row["policy"]))
        assert not state.users["place"].any()
        state.users["place"] = 7 if tick in (TICK + 1, TICK + 3) else 0
        state = ShardState.load(state.dump(), state.slots)
    assert radii == [(200, 0), (200, 0), (400, 2), (400, 2), (800, 5), (800, 5)]
    job.enforce({5: record(5, TICK + 4, 800)})
    assert job.audiences(TICK + 3).version == 0


def test_a_policy_of_another_audience_reveals_nothing() -> None:
    job = Protector(SETTINGS, SECRET)
    job.enforce({2: orjson.dumps({"wayveil": "policy", "from_tick": TICK, "policy": {"version": 2}})})
    out = job.close(ShardState.empty({}), 0, TICK, fixes(SETTINGS, TICK, {"ann": (60.5, 24.5)}))
    assert "traces.one" not in out
    assert not np.any([row["used"] for row in documents(out, "balance")])
