"""Resolution: total, default-deny, independent of order; a place never decides whether or when something is released."""

import json
from datetime import datetime
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streaming.policy import Audience, Deployment, PolicyError, Resolver, View, parse_policy, read_policy
from streaming.policy.calendars import WEEK_MINUTES
from streaming.policy.radii import ladder_m

AUDIENCES = (Audience("one", "friends", "meeting"), Audience("two", "friends", "any"), Audience("three", "boss", "any"))
FITS = Deployment(AUDIENCES, 100.0, ("food", "health"))
USERS = ("ann", "bob", "cid", "dan")
PLACES = ("*", "zone:a", "zone:b", "category:food", "category:health")
WORLD: dict[str, Any] = {
    "version": 1,
    "time_zone": "Europe/Helsinki",
    "groups": {"g": {"users": ["ann", "bob"]}, "h": {"users": ["cid"], "time_zone": "America/St_Johns"}},
    "users": {"bob": {"time_zone": "Asia/Tokyo"}},
    "calendars": {
        "work": {"days": ["mon", "tue", "wed"], "from": "08:00", "to": "16:00"},
        "night": [{"from": "22:00", "to": "06:00"}, {"days": ["sun"], "from": "12:00", "to": "13:00"}],
        "never-at-work": {"days": ["sat", "sun"], "from": "14:00", "to": "15:00"},
    },
    "zones": {
        "a": {"polygon": [[24.0, 60.0], [25.0, 60.0], [25.0, 61.0]]},
        "b": {"box": {"south": 60.0, "west": 24.0, "north": 61.0, "east": 25.0}},
    },
    "preferences": {
        "p": {
            "model": "weighted",
            "weights": {"role": 0.5, "time": 0.25, "place": 0.25},
            "role": {"friends": 1.0, "*": 0.0},
            "time": {"night": 0.0, "*": 1.0},
            "place": {"zone:a": 0.0, "category:food": 0.5, "*": 1.0},
        },
        "q": {"model": "full-table", "table": {"*": {"*": {"work": {"*": 1.0}, "*": {"zone:b": 0.5, "*": 0.1}}}}},
        "r": {"model": "role-tables", "weights": {"time": 1.0}, "roles": {"friends": {"time": {"work": 0.5}}}},
        "only-at-b": {"model": "full-table", "table": {"friends": {"*": {"*": {"zone:b": 0.5}}}}},
    },
}
STARTS = [
    int(datetime.fromisoformat(text).timestamp() * 1000)
    for text in (
        "2026-03-29T00:30:00+00:00",
        "2026-03-29T01:30:00+00:00",
        "2026-10-25T00:30:00+00:00",
        "2026-11-02T07:00:00+00:00",
        "2026-11-03T23:30:00+00:00",
        "2026-11-01T10:30:00+00:00",
        "2026-11-07T12:30:00+00:00",
    )
]

RELEASING = st.one_of(
    st.just({"level": "full"}),
    st.builds(lambda radius: {"level": "perturbed", "radius_m": radius}, st.sampled_from([100, 150, 1000, 30_000])),
    st.builds(lambda name: {"level": "perturbed", "preference": name}, st.sampled_from(["p", "p", "p", "q", "q", "r", "only-at-b"])),
)
FORMS = st.sampled_from(
    [
        {},
        {"form": "anchor"},
        {"form": "candidates", "candidates": 4, "categories": {"default": "full", "health": "none"}},
        {"form": "category", "categories": {"default": "perturbed", "food": "perturbed"}},
    ]
)
KEYS = st.fixed_dictionaries(
    {
        "subject": st.sampled_from(["default", "group:g", "group:h", "user:ann", "user:bob", "user:dan"]),
        "audience": st.sampled_from(["friends", "boss", "*"]),
        "usage": st.sampled_from(["meeting", "any", "*"]),
        "time": st.sampled_from(["work", "night", "*"]),
        "place": st.sampled_from(PLACES),
    }
)


@st.composite
def rules(draw: st.DrawFn, most: int = 7) -> list[dict[str, Any]]:
    """Give rules without any problem but, perhaps, soundness."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for key in draw(st.lists(KEYS, max_size=most)):
        silent = key["place"] == "*" and draw(st.booleans()) and draw(st.booleans())
        what = {"level": "none"} if silent else draw(RELEASING) | draw(FORMS) | {"every": draw(st.sampled_from([1] * 9 + [2]))}
        # Most have a counterpart without a place, so that about half of all policies are accepted.
        if key["place"] != "*" and draw(st.integers(0, 9)):
            found[(*[*key.values()][:4], "*")] = {**key, "place": "*", **what}
        found[tuple(key.values())] = {**key, **what}
    return list(found.values())


def resolver(of: list[dict[str, Any]], deployment: Deployment = FITS) -> Resolver:
    return Resolver(parse_policy({**WORLD, "rule": of}, deployment), deployment, user_id)


def user_id(user: str) -> int:
    return int.from_bytes(blake2b(user.encode(), digest_size=8).digest(), "little")


def classes(of: Resolver, users: tuple[str, ...] = (*USERS, "eve")) -> list[int]:
    return [int(number) for number in of.classes(np.array([user_id(user) for user in users], np.uint64))]


def table(of: Resolver, users: tuple[str, ...] = (*USERS, "eve")) -> dict[tuple[Any, ...], View | None]:
    """Return all views, by what they depend on."""
    numbers = {place: of.places_known.index(place) for place in PLACES}
    return {
        (user, audience, start, place): of.view(subject, audience, start, numbers[place])
        for user, subject in zip(users, classes(of, users), strict=True)
        for audience in range(len(AUDIENCES))
        for start in STARTS
        for place in PLACES
    }


def decides(of: list[dict[str, Any]], user: str, audience: Audience, start: int, place: str) -> dict[str, Any] | None:
    """Say the order again: all rules that match, sorted by how specific each of their keys is."""
    from streaming.policy.calendars import local_time

    group = next((name for name, entry in WORLD["groups"].items() if user in entry["users"]), None)
    own, shared = WORLD["users"].get(user, {}).get("time_zone"), WORLD["groups"].get(group, {}).get("time_zone")
    wall = local_time(own or shared or WORLD["time_zone"], start)
    minute, day = wall.hour * 60 + wall.minute, wall.weekday()
    now = {
        "work": day < 3 and 480 <= minute < 960,
        "night": minute >= 1320 or minute < 360 or (day == 6 and 720 <= minute < 780),
        "*": True,
    }
    ranks = {"default": 0, f"group:{group}": 1, f"user:{user}": 2}
    matching = [
        rule
        for rule in of
        if rule["subject"] in ranks
        and rule["audience"] in ("*", audience.role)
        and rule["usage"] in ("*", audience.usage)
        and now[rule["time"]]
        and rule["place"] in ("*", place)
    ]
    return max(
        matching,
        key=lambda rule: (ranks[rule["subject"]], *(rule[key] != "*" for key in ("audience", "usage", "time", "place"))),
        default=None,
    )


def due(of: list[dict[str, Any]], user: str, audience: Audience, start: int, place: str) -> int | None:
    """Say again how often something is released."""
    rule = decides(of, user, audience, start, place)
    if rule is None or rule["level"] == "none":
        return None
    lacks = {
        "r": audience.role != "friends" or decides([{**rule, "time": "work", "place": "*"}], user, audience, start, place) is None,
        "only-at-b": audience.role != "friends" or place != "zone:b",
    }
    return None if lacks.get(rule.get("preference", ""), False) else int(rule["every"])


@settings(max_examples=150, deadline=None)
@given(rules())
def test_a_policy_is_accepted_only_if_no_place_decides_whether_or_when(of: list[dict[str, Any]]) -> None:
    sound = all(
        due(of, user, audience, start, place) == due(of, user, audience, start, "*")
        for user in (*USERS, "eve")
        for audience in AUDIENCES
        for start in STARTS
        for place in PLACES
    )
    try:
        found = resolver(of)
    except PolicyError:
        return  # the check knows every minute of a week, and these are a few
    assert sound
    for user, subject in zip((*USERS, "eve"), classes(found), strict=True):
        for number, audience in enumerate(AUDIENCES):
            for start in STARTS:
                free, finest = found.view(subject, number, start), found.finest_m(subject, number, start)
                for place in range(len(found.places_known)):
                    view = found.view(subject, number, start, place)
                    assert (view is None) == (free is None) == (finest is None)
                    assert (view and view.every) == due(of, user, audience, start, found.places_known[place])
                    assert view is None or finest is None or finest <= view.radius_m
                    assert view is None or view.radius_m in ladder_m(100.0)


@settings(max_examples=60, deadline=None)
@given(rules(), st.randoms(use_true_random=False))
def test_the_order_of_rules_does_not_matter(of: list[dict[str, Any]], random: Any) -> None:
    try:
        found = resolver(of)
    except PolicyError:
        assume(False)
    other = list(of)
    random.shuffle(other)
    again = resolver(other)
    assert table(again) == table(found)
    assert again.policy.digest == found.policy.digest


@settings(max_examples=60, deadline=None)
@given(rules())
def test_nothing_is_released_but_by_a_rule_that_says_so(of: list[dict[str, Any]]) -> None:
    try:
        found = resolver(of)
    except PolicyError:
        assume(False)
    for (user, audience, start, place), view in table(found).items():
        rule = decides(of, user, AUDIENCES[audience], start, place)
        if rule is None or rule["level"] == "none":
            assert view is None
        elif "preference" not in rule:
            assert view is not None
            assert view.form == rule.get("form", "point")
            assert view.radius_m >= rule.get("radius_m", 100.0) * (1 - 1e-9)
            assert view.radius_m == 100.0 or rule["level"] != "full"


@settings(max_examples=40, deadline=None)
@given(rules(), rules(most=2))
def test_a_rule_for_somebody_else_changes_nothing(of: list[dict[str, Any]], more: list[dict[str, Any]]) -> None:
    try:
        found, other = resolver(of), resolver([*of, *({**rule, "subject": "user:eve"} for rule in more)])
    except PolicyError:
        assume(False)
    assert table(other, USERS) == table(found, USERS)


@settings(max_examples=60, deadline=None)
@given(rules())
def test_who_is_in_one_class_sees_alike_and_a_week_has_every_minute_once(of: list[dict[str, Any]]) -> None:
    try:
        found = resolver(of)
    except PolicyError:
        assume(False)
    for audience in range(len(AUDIENCES)):
        for subject in range(len(found.subjects)):
            assert (np.sum([mask for mask, _ in found.week(subject, audience)], axis=0) == np.ones(WEEK_MINUTES)).all()
    assert classes(found, ("eve", "nobody")) == [0, 0]


def test_days_on_which_clocks_change_have_no_gap() -> None:
    rest = {"days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"], "from": "04:00", "to": "03:00"}
    document = {
        **WORLD,
        "calendars": {"odd": {"from": "03:00", "to": "04:00"}, "rest": rest},
        "preferences": {},
        "rule": [
            {"subject": "default", "audience": "*", "time": "odd", "level": "full"},
            {"subject": "default", "audience": "*", "time": "rest", "level": "perturbed", "radius_m": 1000},
        ],
    }
    found = Resolver(parse_policy(document, FITS), FITS, user_id)
    seen = {}
    for day in ("2026-03-29", "2026-10-25"):
        midnight = int(datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp() * 1000)
        views = [found.view(0, 0, midnight + minute * 60_000) for minute in range(-180, 24 * 60)]
        assert None not in views
        seen[day] = sum(view is not None and view.radius_m == 100.0 for view in views)
    assert seen == {"2026-03-29": 0, "2026-10-25": 120}, "03:00 to 04:00 is skipped in March, and comes twice in October"


def test_the_rules_of_precedence_by_example() -> None:
    def view(user: str, *of: dict[str, Any], place: int = 0) -> float | None:
        found = resolver([{"audience": "*", "level": "perturbed", **rule} for rule in of])
        got = found.view(classes(found, (user,))[0], 0, STARTS[3], place)
        return got and got.radius_m

    default, group, user = ({"subject": name, "radius_m": 100 * 4**i} for i, name in enumerate(("default", "group:g", "user:ann"), 1))
    assert [view(who, default, group, user) for who in ("eve", "bob", "ann")] == [400, 1600, 6400]
    named = {**default, "audience": "friends", "radius_m": 800}
    assert view("eve", default, named) == 800
    assert view("bob", named, group) == 1600, "the subject goes before the audience"
    used = {**default, "usage": "meeting", "radius_m": 200}
    assert view("eve", used, named) == 800, "the audience goes before the usage"
    timed = {**default, "time": "work", "radius_m": 3200}
    assert view("eve", used, timed) == 200, "the usage goes before the time"
    placed = {**default, "place": "zone:a", "radius_m": 12_800}
    assert view("eve", default, placed, place=1) == 12_800
    assert view("eve", default, placed, place=2) == 400
    assert view("eve", timed, {**default, "radius_m": 400}, placed, place=1) == 3200, "the time goes before the place"


@pytest.mark.parametrize(
    ("of", "words"),
    [
        ([{"place": "zone:a"}], r"rule 1: releases at zone:a although nothing is released elsewhere .*there no rule decides"),
        (
            [{"level": "none", "radius_m": None}, {"place": "zone:a"}],
            r"rule 2: releases at zone:a.*there rule 1 decides, and releases nothing",
        ),
        ([{"every": 2}, {"place": "zone:a", "every": 3}], r"rule 2: has every = 3 at zone:a, and rule 1 has every = 2.*write every = 2"),
        ([{}, {"subject": "user:ann", "place": "zone:a", "every": 3}], r"rule 2: has every = 3.*user:ann.*write every = 1"),
        ([{"time": "work"}, {"place": "zone:a"}], r"rule 2: releases at zone:a although nothing"),
        ([{"radius_m": None, "preference": "only-at-b"}], r"rule 1: preference `only-at-b` has no value at `\*`"),
        ([{}, {"time": "*", "place": "zone:a", "radius_m": None, "preference": "r"}], r"rule 2: preference `r` has no value at zone:a"),
    ],
)
def test_places_that_would_tell_by_silence_or_rhythm_are_refused_with_the_reason(of: list[dict[str, Any]], words: str) -> None:
    base = {"subject": "default", "audience": "*", "level": "perturbed", "radius_m": 200}
    rule = [{key: value for key, value in {**base, **change}.items() if value is not None} for change in of]
    with pytest.raises(PolicyError, match=words):
        parse_policy({**WORLD, "rule": rule}, FITS)
    with pytest.raises(PolicyError, match=words):
        parse_policy({**WORLD, "rule": rule})  # also where the audiences are not known


def test_places_are_zones_by_name_then_categories() -> None:
    found = resolver([])
    assert found.places_known == ("*", "zone:a", "zone:b", "category:food", "category:health")
    at = np.array([[60.2, 24.8], [60.8, 24.2], [0.0, 0.0], [np.nan, np.nan], [np.nan, np.nan], [60.8, 24.2], [0.0, 0.0]])
    category = np.array([0, 1, 1, 0, -1, -1, 2], np.int32)
    assert found.places(at, category).tolist() == [1, 2, 4, 3, 0, 2, 0]
    assert found.places(np.zeros((0, 2)), np.zeros(0, np.int32)).dtype == np.int32


def test_views_are_what_the_rule_says() -> None:
    rule = {"subject": "default", "audience": "*", "level": "perturbed", "radius_m": 300, "every": 5, "form": "candidates"}
    categories = {"default": "full", "health": "none", "food": "full"}
    found = resolver([{**rule, "candidates": 3, "categories": categories}])
    view = found.view(0, 0, 0)
    assert view == View(400.0, 5, "candidates", 3, (("default", "full"), ("health", "none")))
    assert hash(view) == hash(resolver([{**rule, "categories": categories}]).view(0, 0, 0))
    assert resolver([{**rule, "form": "point"}]).view(0, 0, 0) == View(200.0 * 2, 5, "point", 1, ())


def test_users_with_equal_rules_group_and_time_zone_share_a_class() -> None:
    rule = {"audience": "*", "level": "full"}
    found = resolver([{**rule, "subject": f"user:{user}"} for user in ("x", "y", "ann", "bob")])
    x, y, ann, bob, cid, eve = classes(found, ("x", "y", "ann", "bob", "cid", "eve"))
    assert x == y == ann
    assert eve == 0
    assert len({x, bob, cid, eve}) == 4, "bob and cid live in other time zones"


def test_a_hundred_thousand_users_are_classed_at_once() -> None:
    users = [f"u{i}" for i in range(300)]
    document = {**WORLD, "groups": {"many": {"users": users}}, "users": {}, "preferences": {}}
    document["rule"] = [{"subject": "group:many", "audience": "*", "level": "full"}]
    found = Resolver(parse_policy(document, FITS), FITS, user_id)
    ids = np.array([user_id(user) for user in users] * 300 + [1, 2**64 - 1], np.uint64)
    assert found.classes(ids).tolist() == [1] * 90_000 + [0, 0]


def test_users_who_share_an_identifier_are_refused() -> None:
    with pytest.raises(PolicyError, match="share an identifier"):
        Resolver(parse_policy({**WORLD, "rule": []}, FITS), FITS, lambda _: 7)


def test_unknown_numbers_are_refused() -> None:
    found = resolver([{"subject": "default", "audience": "*", "level": "full"}])
    for subject, audience, place in ((-1, 0, 0), (9, 0, 0), (0, -1, 0), (0, 3, 0), (0, 0, -1), (0, 0, 99)):
        with pytest.raises(IndexError):
            found.view(subject, audience, 0, place)


def test_a_policy_that_does_not_fit_the_deployment_is_refused() -> None:
    policy = read_policy(json.dumps({"version": 1, "rule": [{"subject": "default", "audience": "king", "level": "full"}]}), "json")
    with pytest.raises(PolicyError, match="unknown role `king`"):
        Resolver(policy, FITS, user_id)
