"""What audiences get: by policy, time and what they were sent before, never by where somebody is; and together no more than the finest."""

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from geo.anchors.index import AnchorIndex
from geo.plane import Plane, Region
from streaming.audiences import Audiences, Last
from streaming.charges import read_charges
from streaming.decode import Decoder
from streaming.policy import PolicyError, parse_policy
from streaming.release import Outputs
from streaming.settings import Settings, SettingsError, parse_settings
from streaming.shard import Protector, ShardState, tick_grid
from tests.streaming.test_policy_resolver import WORLD, rules

SECRET = b"k" * 32
TICK = 29_900_000
REGION = {"name": "helsinki", "south": 60.0, "west": 24.0, "north": 61.0, "east": 25.0}
THREE = [{"name": "one", "role": "friends", "usage": "meeting"}, {"name": "two", "role": "friends"}, {"name": "three", "role": "boss"}]
DRAWS = 100_000


def config(audience: Any = THREE, **sections: Any) -> Settings:
    privacy = {"full_radius_m": 100, **sections.pop("privacy", {})}
    return parse_settings({"region": REGION, "secret": {"env": "UNUSED"}, "privacy": privacy, "audience": audience, **sections})


def anchors() -> AnchorIndex:
    """Food and health all over the region, a kilometre apart."""
    lat, lon = (axis.ravel() for axis in np.meshgrid(np.linspace(60.02, 60.98, 100), np.linspace(24.02, 24.98, 50)))
    plane = Plane(Region(REGION["name"], *(REGION[side] for side in ("south", "west", "north", "east"))))  # type: ignore[arg-type]
    return AnchorIndex(plane, ("food", "health"), [f"a{i:04}" for i in range(len(lat))], lat, lon, [[i % 2] for i in range(len(lat))])


ANCHORS = anchors()


def protector(of: list[dict[str, Any]], settings: Settings) -> Protector:
    deployment = Audiences(settings, SECRET, None, ANCHORS).deployment
    world = {key: value for key, value in WORLD.items() if key != "preferences" or any("preference" in rule for rule in of)}
    return Protector(settings, SECRET, policy=parse_policy({**world, "rule": of}, deployment), anchors=ANCHORS)


def fixes(settings: Settings, tick: int, places: dict[str, tuple[float, float]]) -> NDArray[np.void]:
    values = [orjson.dumps({"user": user, "t": tick * 60_000, "lat": lat, "lon": lon}) for user, (lat, lon) in places.items()]
    n = len(values)
    return Decoder(settings.source, tick_grid(settings), SECRET).decode(
        values, np.full(n, tick * 60_000 + 59_000), np.zeros(n, int), np.arange(n)
    )


def documents(out: Outputs, topic: str) -> list[dict[str, Any]]:
    return [orjson.loads(line.split("\t")[1]) for line in out.get(topic, [])]


def shape(out: Outputs) -> object:
    """All of what is published but places, and what tells looks apart."""
    rows = {}
    for topic in out:
        if topic.startswith("traces."):
            placeless = [{k: v for k, v in row.items() if k not in PLACES} for row in documents(out, topic)]
            rows[topic] = sorted(placeless, key=lambda row: str(row["user"]))
    charges = [read_charges(row)[["user", "tick", "charge_micro"]].tolist() for row in documents(out, "charges")]
    return rows, charges, out.get("releases"), out.get("balance")


PLACES = ("lat", "lon", "look", "anchor", "category", "candidates", "form")

USERS = ("ann", "bob", "cid", "eve")
spots = st.tuples(st.floats(60.01, 60.99), st.floats(24.01, 24.99))
paths = st.lists(st.fixed_dictionaries({}, optional={user: st.just(True) for user in USERS}), min_size=1, max_size=4)


@hypothesis_settings(max_examples=25, deadline=None)
@given(rules(), paths, st.data())
def test_where_somebody_is_decides_nothing(of: list[dict[str, Any]], presence: list[dict[str, bool]], data: st.DataObject) -> None:
    """Two worlds that differ in positions alone, with what audiences were sent before forced to agree, publish the same but for places."""
    settings = config(privacy={"full_radius_m": 100, "releases_per_window": 2, "window_ticks": 3})
    try:
        here = protector(of, settings)
    except PolicyError:
        assume(False)
    there = Protector(settings, SECRET, policy=here.policy, anchors=ANCHORS)
    states = [ShardState.empty({}, len(THREE)), ShardState.empty({}, len(THREE))]
    forced = any(rule["place"] != "*" or rule.get("preference") for rule in of)
    for number, who in enumerate(presence):
        tick, out = TICK + 7 * number, []
        for world, state in zip((here, there), states, strict=True):
            rows = fixes(settings, tick, {user: data.draw(spots) for user in who})
            out.append(shape(world.close(state, 0, tick, rows)))
        assert out[0] == out[1]
        if forced:
            states[1].users["place"] = states[0].users["place"]


def test_views_follow_the_policy() -> None:
    settings = config()
    of = [
        {"subject": "default", "audience": "friends", "level": "perturbed", "radius_m": 400},
        {"subject": "default", "audience": "friends", "usage": "meeting", "level": "full"},
        {"subject": "default", "audience": "boss", "level": "perturbed", "radius_m": 1600, "every": 5, "form": "category",
         "categories": {"default": "perturbed", "health": "none"}},
        {"subject": "user:cid", "audience": "boss", "level": "none"},
    ]  # fmt: skip
    job, state = protector(of, settings), ShardState.empty({}, 3)
    places = {user: (60.5, 24.5) for user in ("ann", "cid")}
    out = job.close(state, 0, TICK, fixes(settings, TICK, places))
    one, two, three = (documents(out, f"traces.{name}") for name in ("one", "two", "three"))
    assert [row["radius_m"] for row in one] == [100, 100]
    assert [row["radius_m"] for row in two] == [400, 400]
    assert len(three) == 1
    assert three[0]["category"] == "food"
    assert "lat" not in three[0]
    assert three[0]["form"] == "category"
    names = [{str(row["user"]) for row in rows} for rows in (one, two, three)]
    assert not names[0] & names[1]
    assert not names[1] & names[2]
    summaries = {row["audience"]: row for row in documents(out, "releases")}
    assert {name: row["enrolled"] for name, row in summaries.items()} == {"one": 2, "two": 2, "three": 1}
    for name, rows in (("one", one), ("two", two), ("three", three)):
        assert summaries[name]["epsilon_micro"] == sum(row["epsilon_micro"] for row in rows)
    (charges,) = (read_charges(row) for row in documents(out, "charges"))
    assert charges["charge_micro"].tolist() == [one[0]["epsilon_micro"]] * 2
    later = job.close(state, 0, TICK + 1, fixes(settings, TICK + 1, places))
    assert "traces.three" not in later
    assert len(documents(later, "traces.one")) == 2


def test_nobody_asks_so_nothing_is_charged_and_the_fix_is_withheld() -> None:
    settings = config()
    job = protector([{"subject": "user:ann", "audience": "*", "level": "full"}], settings)
    out = job.close(ShardState.empty({}, 3), 0, TICK, fixes(settings, TICK, {"eve": (60.5, 24.5)}))
    (balance,) = documents(out, "balance")
    assert (balance["withheld"], balance["used"]) == (1, 0)
    assert not {"traces.one", "charges", "releases"} & set(out)


def test_the_charge_is_the_finest_that_a_place_could_ask_for() -> None:
    settings = config(THREE[:2])
    of = [
        {"subject": "default", "audience": "friends", "level": "perturbed", "radius_m": 1600},
        {"subject": "default", "audience": "friends", "place": "zone:a", "level": "full"},
    ]
    job, state = protector(of, settings), ShardState.empty({}, 2)
    out = job.close(state, 0, TICK, fixes(settings, TICK, {"ann": (60.1, 24.9)}))
    (charge,) = (read_charges(row)["charge_micro"].item() for row in documents(out, "charges"))
    assert charge == job.audiences(TICK).statement(100).epsilon_micro
    assert documents(out, "traces.one")[0]["radius_m"] == 1600
    zone = state.users["place"][0, 0]
    state.users["place"][0] = (1, 0)
    out = job.close(state, 0, TICK + 1, fixes(settings, TICK + 1, {"ann": (60.9, 24.1)}))
    assert [documents(out, f"traces.{name}")[0]["radius_m"] for name in ("one", "two")] == [100, 1600]
    assert zone in (0, 1)


def test_a_refused_look_is_withheld_from_all() -> None:
    settings = config(privacy={"releases_per_window": 1})
    of = [
        {"subject": "default", "audience": "friends", "level": "full"},
        {"subject": "default", "audience": "boss", "level": "perturbed", "radius_m": 400},
    ]
    job, state = protector(of, settings), ShardState.empty({}, 3)
    for status in ("withheld",):
        out = job.close(state, 0, TICK, fixes(settings, TICK, {"ann": (60.1, 24.9)}))
        for name in ("one", "two", "three"):
            assert [row["status"] for row in documents(out, f"traces.{name}")] == [status]
    assert "charges" not in out


def test_audiences_who_put_their_topics_together_gain_nothing() -> None:
    """10⁵ looks at one place: the best weighted mean of what three audiences get is what the finest gets."""
    settings = config()
    of = [
        {"subject": "default", "audience": "friends", "usage": "meeting", "level": "full"},
        {"subject": "default", "audience": "friends", "level": "perturbed", "radius_m": 141},
        {"subject": "default", "audience": "boss", "level": "perturbed", "radius_m": 200},
    ]
    audiences = protector(of, settings).audiences(TICK)
    user = np.arange(DRAWS, dtype=np.uint64)
    views = audiences.views(TICK, TICK * 60_000, user, np.zeros((DRAWS, 3), np.uint32))
    nowhere = Last(np.zeros((DRAWS, 2), np.int64), np.zeros(DRAWS, bool))

    def noise(at: int) -> NDArray[np.float64]:
        looks = audiences.look(at, user, views.number, views.kinds, views.charge_micro, np.zeros((DRAWS, 2), np.int64), nowhere)
        return looks.cells[:, :, 0].T.astype(float)

    errors = noise(TICK)
    best = 1 / np.linalg.inv(np.cov(errors)).sum()
    assert best > 0.99 * errors[0].var()
    assert errors[1].var() > 1.8 * errors[0].var()
    assert errors[2].var() > 1.8 * errors[1].var()
    means = (errors.mean(axis=0).var(), np.median(errors, axis=0).var())
    assert min(means) > 0.99 * errors[0].var()
    apart = np.stack([errors[0], *(noise(TICK + i)[i] for i in (1, 2))])
    assert 1 / np.linalg.inv(np.cov(apart)).sum() < 0.8 * errors[0].var()


def test_neither_the_public_ledger_nor_the_order_of_rows_tells_what_another_audience_was_sent() -> None:
    settings = config()
    of = [
        {"subject": "default", "audience": "friends", "level": "perturbed", "radius_m": 400},
        {"subject": "default", "audience": "friends", "usage": "meeting", "level": "perturbed", "radius_m": 400},
        {"subject": "default", "audience": "friends", "usage": "meeting", "place": "zone:a", "level": "perturbed", "radius_m": 200},
        {"subject": "default", "audience": "boss", "level": "perturbed", "radius_m": 400},
        {"subject": "user:bob", "audience": "boss", "level": "perturbed", "radius_m": 800},
    ]
    found = []
    for place in (0, 1):
        job, state = protector(of, settings), ShardState.empty({}, 3)
        people = {user: (60.5, 24.5) for user in ("ann", "bob", "cid", "dan", "eve")}
        job.close(state, 0, TICK, fixes(settings, TICK, people))
        state.users["place"][:, 0] = place
        out = job.close(state, 0, TICK + 1, fixes(settings, TICK + 1, people))
        keys = [line.split("\t")[0] for line in out["traces.three"]]
        assert keys == sorted(keys)
        found.append((out["releases"], keys))
        assert {row["radius_m"] for row in documents(out, "traces.one")} == {(400, 200)[place]}
    assert found[0] == found[1]


def test_without_a_policy_releases_are_at_the_settings_radius_or_wait_for_one() -> None:
    at = {"ann": (60.5, 24.5)}
    settings = config([], privacy={"full_radius_m": 150})
    (row,) = documents(Protector(settings, SECRET).close(ShardState.empty({}), 0, TICK, fixes(settings, TICK, at)), "traces")
    assert row["radius_m"] == 200
    waiting = config([], live_policies=True)
    assert "traces" not in Protector(waiting, SECRET).close(ShardState.empty({}), 0, TICK, fixes(waiting, TICK, at))


def test_a_radius_whose_noise_cannot_be_drawn_is_refused_with_the_policy() -> None:
    settings = config(THREE[:1])
    with pytest.raises(PolicyError, match="should be from 100"):
        protector([{"subject": "default", "audience": "friends", "level": "perturbed", "radius_m": 100_000}], settings)
    coarsest = Protector(settings, SECRET, anchors=ANCHORS).audiences(TICK).deployment.coarsest_radius_m
    job = protector([{"subject": "default", "audience": "friends", "level": "perturbed", "radius_m": coarsest / 1.5}], settings)
    assert documents(job.close(ShardState.empty({}), 0, TICK, fixes(settings, TICK, {"ann": (60.5, 24.5)})), "traces.one")


def test_one_audience_gets_the_same_whoever_else_reads() -> None:
    alone, both = config(THREE[:1]), config(THREE)
    of = [{"subject": "default", "audience": "*", "level": "full"}]
    lines = [
        protector(of, settings).close(ShardState.empty({}, len(settings.audiences)), 0, TICK, fixes(settings, TICK, {"ann": (60.5, 24.5)}))
        for settings in (alone, both)
    ]
    assert lines[0]["traces.one"] == lines[1]["traces.one"]


def test_anchored_rows_give_no_position_where_there_is_no_anchor() -> None:
    settings = config(THREE[2:])
    categories = {"default": "none", "food": "full"}
    of = [{"subject": "default", "audience": "boss", "level": "full", "form": "candidates", "candidates": 3, "categories": categories}]
    job = protector(of, settings)
    places = {f"u{i}": (60.0 + i / 250, 24.5) for i in range(250)}
    rows = documents(job.close(ShardState.empty({}, 1), 0, TICK, fixes(settings, TICK, places)), "traces.three")
    assert {row["form"] for row in rows} == {"candidates", "unanchored"}
    for row in rows:
        assert "lat" not in row
        if row["form"] == "candidates":
            assert all(each["category"] == "food" and each["anchor"].startswith("a") for each in row["candidates"])
            assert sum(each["share"] for each in row["candidates"]) == pytest.approx(1, abs=1e-3)
        else:
            assert "candidates" not in row


def test_a_policy_that_speaks_of_anchors_needs_them() -> None:
    settings = config(THREE[2:])
    of = [{"subject": "default", "audience": "boss", "level": "full", "form": "anchor", "categories": {"default": "full"}}]
    with pytest.raises(PolicyError, match="anchors"):
        Protector(settings, SECRET, policy=protector(of, settings).policy)


def predictive(**privacy: Any) -> Settings:
    return config([], privacy={"full_radius_m": 200, "mechanism": "predictive", **privacy})


def test_a_parked_user_costs_less_and_gets_the_same_place_again() -> None:
    ticks, spent, rows = 200, {}, []
    for settings in (predictive(), config([])):
        job, state = Protector(settings, SECRET), ShardState.empty({})
        for tick in range(TICK, TICK + ticks):
            out = job.close(state, 0, tick, fixes(settings, tick, {"ann": (60.5, 24.5)}))
            state = ShardState.load(state.dump(), state.slots)
            rows += documents(out, "traces")
            paid = sum(int(read_charges(row)["charge_micro"].sum()) for row in documents(out, "charges"))
            spent[settings.privacy.mechanism] = spent.get(settings.privacy.mechanism, 0) + paid
            assert paid == sum(row.get("epsilon_micro", 0) for row in documents(out, "traces"))
        if settings.privacy.mechanism == "predictive":
            released = [row for row in rows if row["status"] == "released"]
            again = [
                row
                for row, before in zip(released[1:], released, strict=False)
                if (row["lat"], row["lon"]) == (before["lat"], before["lon"])
            ]
            assert len(again) > 0.7 * len(released)
            assert len({row["epsilon_micro"] for row in again}) == 1
            assert {row["epsilon_micro"] for row in released} > {row["epsilon_micro"] for row in again}
            assert len({row["look"] for row in released}) == len(released)
            assert len(released) == ticks
            rows.clear()
    # W alone is refused after 120 releases, so it is compared per release
    each = spent["window-mean"] / 120
    assert spent["predictive"] / ticks < 0.65 * each


def test_the_costlier_outcome_has_to_be_free_before_the_test() -> None:
    settings = predictive(releases_per_window=2)
    job, state = Protector(settings, SECRET), ShardState.empty({})
    limit = job.audiences(TICK).limit_micro
    most = job.audiences(TICK).most_micro(200)
    spent, withheld = 0, 0
    for tick in range(TICK, TICK + 6):
        out = job.close(state, 0, tick, fixes(settings, tick, {"ann": (60.5, 24.5)}))
        (row,) = documents(out, "traces")
        assert (row["status"] == "withheld") == (spent + most > limit)
        spent += row.get("epsilon_micro", 0)
        withheld += row["status"] == "withheld"
        assert spent <= limit
    assert withheld


def test_predictions_serve_one_audience_alone() -> None:
    with pytest.raises(SettingsError, match="one audience"):
        config(THREE, privacy={"mechanism": "predictive"})
