"""What holds in a tick, of all that the topic `policies` has brought: the deployment's policy, and users' edits in it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from streaming.audiences import Audiences, deployment_of
from streaming.policy import PolicyError, Resolver, parse_edit, parse_policy
from streaming.policy.resolution import View
from streaming.policy_log import DEPLOYMENT, Entry, Timeline, Version, edit_record, in_force, rejected_policy_line, with_entry
from streaming.shard import Protector, ShardState
from tests.streaming.test_audiences import ANCHORS, SECRET, THREE, TICK, config, documents, fixes, shape
from tests.streaming.test_policy_resolver import STARTS, WORLD, user_id

SETTINGS = config(THREE[:1])
FITS = deployment_of(SETTINGS, None)
PLACE = {"zones": {"a": {"box": {"south": 60.0, "west": 24.0, "north": 61.0, "east": 25.0}}}}


def policy(version: int, radius_m: float = 100, **more: Any) -> dict[str, Any]:
    rule = {"subject": "default", "audience": "friends", "level": "perturbed", "radius_m": radius_m}
    return {"version": version, "rule": [rule], **more}


def record(version: int, from_tick: int, radius_m: float = 100, **more: Any) -> bytes:
    return Version(from_tick, parse_policy(policy(version, radius_m, **more), FITS)).dump()


def edit(user: str, version: int, from_tick: int, *rules: dict[str, Any], **more: Any) -> Entry:
    return version, from_tick, edit_record(parse_edit({"user": user, "version": version, "rule": list(rules), **more}))


def perturbed(radius_m: float, **more: Any) -> dict[str, Any]:
    return {"audience": "friends", "level": "perturbed", "radius_m": radius_m, **more}


def test_a_version_survives_its_record() -> None:
    found = Version.load(record(3, TICK), FITS)
    assert (found.from_tick, found.policy) == (TICK, parse_policy(policy(3), FITS))


def test_a_rejected_record_is_named_and_not_quoted() -> None:
    key, row = rejected_policy_line("policy_invalid", "policies", 7, 9).split("\t")
    assert key == "policy-7"
    assert orjson.loads(row) == {"v": 1, "reason": "policy_invalid", "topic": "policies", "partition": 0, "offset": 7, "log_ms": 9}


entries = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 9), st.just(b"")), max_size=8, unique_by=lambda entry: entry[0])


@given(entries, st.integers(0, 10))
def test_the_highest_version_that_has_begun_holds(found: list[Entry], tick: int) -> None:
    holding = in_force(found, tick)
    begun = [number for number, start, _ in found if start <= tick]
    assert (holding[0] if holding else 0) == max(begun, default=0)


@given(entries, st.integers(0, 10))
def test_what_is_forgotten_could_hold_no_more(found: list[Entry], first: int) -> None:
    kept: list[Entry] = []
    for entry in found:
        kept = with_entry(kept, entry, first)
    assert all(in_force(kept, tick) == in_force(found, tick) for tick in range(first, 12))
    assert all(any(in_force(kept, tick) == entry for tick in range(first, 12)) or entry[1] > first for entry in kept)


def test_a_change_takes_effect_at_its_tick_and_places_are_classed_anew() -> None:
    job, state = Protector(SETTINGS, SECRET), ShardState.empty({})
    versions = [(2, TICK + 2, record(2, TICK + 2, 400)), (5, TICK + 4, record(5, TICK + 4, 800)), (3, TICK + 4, record(3, TICK + 4, 1600))]
    job.enforce({DEPLOYMENT: versions})
    radii = []
    for tick in range(TICK, TICK + 6):
        out = job.close(state, 0, tick, fixes(SETTINGS, tick, {"ann": (60.5, 24.5)}))
        (row,) = documents(out, "traces.one")
        radii.append((row["radius_m"], row["policy"]))
        assert not state.users["place"].any()
        state.users["place"] = 7 if tick in (TICK + 1, TICK + 3) else 0
        state = ShardState.load(state.dump(), state.slots)
    assert radii == [(200, 0), (200, 0), (400, 2), (400, 2), (800, 5), (800, 5)]
    job.enforce({DEPLOYMENT: versions[1:2]})
    assert job.audiences(TICK + 3).version == 0


def test_a_policy_of_another_audience_reveals_nothing() -> None:
    job = Protector(SETTINGS, SECRET)
    empty = orjson.dumps({"wayveil": "policy", "from_tick": TICK, "policy": {"version": 2}})
    job.enforce({DEPLOYMENT: [(2, TICK, empty)]})
    out = job.close(ShardState.empty({}), 0, TICK, fixes(SETTINGS, TICK, {"ann": (60.5, 24.5)}))
    assert "traces.one" not in out
    assert not np.any([row["used"] for row in documents(out, "balance")])


def test_a_version_that_is_sound_for_the_audiences_there_are_can_be_put_in_force() -> None:
    """Taken for itself it would tell by being released to an audience of another role; there is none."""
    rules = [perturbed(800, subject="default"), perturbed(1600, subject="default", audience="*", place="zone:a")]
    only = parse_policy({"version": 2, "rule": rules, **PLACE}, FITS)
    with pytest.raises(PolicyError):
        parse_policy({"version": 2, "rule": rules, **PLACE})
    job = Protector(SETTINGS, SECRET)
    job.enforce({DEPLOYMENT: [(2, TICK, Version(TICK, only).dump())]})
    assert job.audiences(TICK).version == 2


def test_an_edit_takes_effect_at_its_tick_and_keeps_the_classes_of_places() -> None:
    first = parse_policy(policy(1, 100, user_edits=True, **PLACE), FITS)
    job, state = Protector(SETTINGS, SECRET, policy=first), ShardState.empty({})
    job.enforce(
        {
            "user:ann": [edit("ann", 1, TICK + 1, perturbed(400)), edit("ann", 2, TICK + 2), edit("ann", 4, TICK + 4, perturbed(800))],
            DEPLOYMENT: [
                (3, TICK + 3, record(3, TICK + 3, 200, user_edits=True, **PLACE)),
                (4, TICK + 5, record(4, TICK + 5, 200, **PLACE)),
            ],
        }
    )
    found = []
    for tick in range(TICK, TICK + 6):
        out = job.close(state, 0, tick, fixes(SETTINGS, tick, {"ann": (60.5, 24.5), "bob": (60.5, 24.5)}))
        radii = sorted(row["radius_m"] for row in documents(out, "traces.one"))
        # Everybody who was released under this version was told to be in the zone.
        found.append((radii, int(state.users["place"].sum())))
    assert found == [([100, 100], 2), ([100, 400], 2), ([100], 2), ([200], 1), ([200, 800], 2), ([200, 200], 2)]


def test_one_policy_is_built_a_change_point_and_not_a_tick() -> None:
    first = parse_policy(policy(1, 100, user_edits=True), FITS)
    job = Protector(SETTINGS, SECRET, policy=first)
    assert job.audiences(TICK) is job.audiences(TICK + 50)
    job.enforce({"user:ann": [edit("ann", 1, TICK + 10, perturbed(400))], "user:bob": [edit("bob", 7, TICK + 10)]})
    assert job.audiences(TICK) is job.audiences(TICK + 9)
    edited = job.audiences(TICK + 10)
    assert edited is not job.audiences(TICK)
    job.enforce(
        {"user:ann": [edit("ann", 1, TICK + 10, perturbed(400)), edit("ann", 2, TICK + 20)], "user:bob": [edit("bob", 7, TICK + 10)]}
    )
    assert edited is job.audiences(TICK + 19)
    assert edited is not job.audiences(TICK + 20)
    for number in range(3, 60):
        job.enforce({"user:ann": [edit("ann", number, TICK + number)]})
        job.audiences(TICK + number)
    assert len(job._built) <= 16


def test_the_order_in_which_edits_are_handed_over_has_no_say() -> None:
    first = parse_policy(policy(1, 100, user_edits=True), FITS)
    timeline, early, late = Timeline(first, FITS), edit("ann", 1, TICK, perturbed(400)), edit("ann", 2, TICK + 1, perturbed(800))

    def radius_m(tick: int) -> float | None:
        found = timeline.policy(tick)
        assert found is not None
        return found.document.rule[-1].radius_m

    for entries in ([early, late], [late, early]):
        timeline.enforce({"user:ann": entries})
        assert (radius_m(TICK), radius_m(TICK + 1)) == (400, 800)
    before = timeline.point(TICK)
    timeline.enforce({"user:ann": [early, late], "user:bob": [edit("bob", 1, TICK)]})
    assert timeline.point(TICK) != before, "what comes for a tick that was asked for already counts too"


def test_two_users_who_share_an_identifier_stop_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    first = parse_policy(policy(1, 100, user_edits=True), FITS)
    job = Protector(SETTINGS, SECRET, policy=first)
    job.enforce({f"user:{user}": [edit(user, 1, TICK, perturbed(400))] for user in ("ann", "bob")})
    monkeypatch.setattr("streaming.audiences.user_id", lambda key, user: 7)
    out = job.close(ShardState.empty({}), 0, TICK, fixes(SETTINGS, TICK, {"ann": (60.5, 24.5), "cid": (60.5, 24.5)}))
    assert "traces.one" not in out


# What follows reads the rules once more, the slow way: a document of its own for every user and tick.

AUDIENCES = config(THREE)
WIDE = deployment_of(AUDIENCES, ANCHORS)
CALENDARS = (WORLD["calendars"], {"work": WORLD["calendars"]["work"]})
SHARED = [
    [{"subject": "default", "audience": "*", "level": "full"}],
    [
        {"subject": "default", "audience": "friends", "level": "full"},
        {"subject": "default", "audience": "friends", "place": "zone:a", "level": "perturbed", "radius_m": 900},
        {"subject": "group:g", "audience": "*", "level": "perturbed", "radius_m": 300, "every": 2},
        {"subject": "user:ann", "audience": "boss", "level": "perturbed", "radius_m": 500},
        {"subject": "user:bob", "audience": "boss", "place": "*", "level": "none"},
    ],
    [],
]
RULE = st.fixed_dictionaries(
    {
        "audience": st.sampled_from(["friends", "boss", "*"]),
        "time": st.sampled_from(["*", "*", "work", "night"]),
        "place": st.sampled_from(["*", "*", "zone:a", "zone:b"]),
    }
)
WHAT = st.sampled_from(
    [
        {"level": "none"}, {"level": "full"}, {"level": "perturbed", "radius_m": 400}, {"level": "perturbed", "radius_m": 400, "every": 2},
        {"level": "perturbed", "preference": "q"},
    ]
)  # fmt: skip
RULES = st.lists(st.builds(lambda key, what: {**key, **what}, RULE, WHAT), max_size=3)
LOG = st.lists(
    st.one_of(
        st.tuples(st.just(""), st.integers(0, 6), st.integers(0, 2), st.booleans(), st.booleans()),
        st.tuples(st.sampled_from(["ann", "bob", "eve"]), st.integers(1, 3), RULES, st.sampled_from([None, "Asia/Tokyo"])),
    ),
    max_size=10,
)


def base(version: int, number: int, permits: bool, fewer: bool) -> dict[str, Any]:
    preferences = {"q": WORLD["preferences"]["q"]}
    world = {**WORLD, "preferences": preferences, "calendars": CALENDARS[fewer], "version": version}
    return {**world, "user_edits": permits, "rule": SHARED[number]}


def by_hand(first: dict[str, Any], log: Mapping[str, list[Entry]], whole: Mapping[int, dict[str, Any]], user: str, tick: int) -> Resolver:
    """Give the policy that holds for one user in a tick."""
    begun = [number for number, start, _ in log.get(DEPLOYMENT, []) if start <= tick]
    document = whole[max(begun)] if begun else first
    own = [orjson.loads(record) for _, start, record in log.get(f"user:{user}", []) if start <= tick]
    if document["user_edits"] and own:
        last = max(own, key=lambda one: one["version"])
        others = [rule for rule in document["rule"] if rule["subject"] != f"user:{user}"]
        users = {**document["users"], user: {"time_zone": last["time_zone"]}} if last.get("time_zone") else document["users"]
        changed = {**document, "users": users, "rule": others + last["rule"]}
        nothing = {**document, "rule": [*others, {"subject": f"user:{user}", "audience": "*", "level": "none"}]}
        try:
            return Resolver(parse_policy(changed if last["rule"] else nothing, WIDE), WIDE, user_id)
        except PolicyError:
            return Resolver(parse_policy(nothing, WIDE), WIDE, user_id)
    return Resolver(parse_policy(document, WIDE), WIDE, user_id)


def views(of: Resolver, user: str) -> list[View | None]:
    (subject,) = of.classes(np.array([user_id(user)], np.uint64))
    places = range(len(of.places_known))
    return [of.view(int(subject), audience, start, place) for audience in range(3) for start in STARTS[3:6] for place in places]


@hypothesis_settings(max_examples=25, deadline=None)
@given(LOG, st.sampled_from([True, True, False]), st.randoms())
def test_what_holds_is_what_a_slow_reading_of_the_rules_gives(log: list[Any], permits: bool, random: Any) -> None:
    first = base(1, 1, permits, False)
    admitted: dict[str, list[Entry]] = {}
    whole = {}
    numbers: dict[str, int] = {}
    for user, tick, *what in log:
        numbers[user] = number = numbers.get(user, 1) + 1
        if user == "":
            shared, allowed, fewer = what
            whole[number] = base(number, shared, allowed, fewer)
            try:
                version = Version(tick, parse_policy(whole[number], WIDE))
            except PolicyError:
                continue
            entry, scope = (number, tick, version.dump()), DEPLOYMENT
        else:
            rules, zone = what
            scope = f"user:{user}"
            # Of one user each edit holds later than those before.
            begins = tick + max((start for _, start, _ in admitted.get(scope, [])), default=-1)
            entry = edit(user, number, begins, *rules, time_zone=zone)
        admitted.setdefault(scope, []).append(entry)
    timeline = Timeline(parse_policy(first, WIDE), WIDE)
    shuffled = [(scope, random.sample(held, len(held))) for scope, held in admitted.items()]
    random.shuffle(shuffled)
    for some in (dict(shuffled[: len(shuffled) // 2]), dict(shuffled)):
        timeline.enforce(some)
        assert all(timeline.point(tick).version for tick in range(9))
    for tick in sorted({0, *(entry[1] for held in admitted.values() for entry in held)}):
        found = timeline.policy(tick)
        assert found is not None
        # Nothing is wrong with the whole either: it is not checked again when it is put in force.
        parse_policy(found.document.model_dump(mode="json", by_alias=True, exclude_defaults=True), WIDE)
        merged = Resolver(found, WIDE, user_id)
        for user in ("ann", "bob", "cid", "eve", "zoe"):
            assert views(merged, user) == views(by_hand(first, admitted, whole, user, tick), user)


spots = st.tuples(st.floats(60.01, 60.99), st.floats(24.01, 24.99))


@hypothesis_settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["ann", "bob", "eve"]), st.integers(0, 3), RULES), max_size=5), st.data())
def test_where_somebody_is_decides_nothing_under_edits_either(found: list[tuple[str, int, Any]], data: st.DataObject) -> None:
    settings = config(THREE, privacy={"full_radius_m": 100, "releases_per_window": 2, "window_ticks": 3})
    admitted: dict[str, list[Entry]] = {}
    for number, (user, tick, rules) in enumerate(found, 1):
        held = admitted.setdefault(f"user:{user}", [])
        assume(all(start < TICK + tick for _, start, _ in held))
        held.append(edit(user, number, TICK + tick, *rules))
    first = parse_policy(base(1, 1, True, False), deployment_of(settings, ANCHORS))
    worlds = [Protector(settings, SECRET, policy=first, anchors=ANCHORS) for _ in range(2)]
    states = [ShardState.empty({}, 3) for _ in worlds]
    for tick in range(TICK, TICK + 4):
        out = []
        for world, state in zip(worlds, states, strict=True):
            world.enforce(admitted)
            rows = fixes(settings, tick, {user: data.draw(spots) for user in ("ann", "bob", "eve")})
            out.append(shape(world.close(state, 0, tick, rows)))
        assert out[0] == out[1]
        states[1].users["place"] = states[0].users["place"]


def test_every_radius_that_fits_can_be_drawn() -> None:
    """What a policy may choose has noise at the deployment's step, from the finest radius to the coarsest."""
    audiences = Audiences(AUDIENCES, SECRET, None, ANCHORS)
    assert len([audiences.statement(radius_m) for radius_m in WIDE.ladder]) > 10
    with pytest.raises(PolicyError, match="radius_m"):
        parse_policy(policy(1, WIDE.ladder[-1] * 1.01), WIDE)
    with pytest.raises(PolicyError, match="max_radius_m"):
        parse_policy(base(1, 0, True, False) | {"max_radius_m": WIDE.ladder[-1] * 1.01}, WIDE)
