import dataclasses
from typing import Any

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray

from geo.plane import Plane
from geo.tiling.tiling import Tiling, tile
from streaming.counting import ShardCounts, count_unclosed
from streaming.publisher import Publisher, PublisherState
from streaming.records import RECORD
from streaming.settings import Settings, SettingsError, parse_settings

SECRET = b"k" * 32
REGION = {"name": "helsinki", "south": 60.0, "west": 24.5, "north": 60.4, "east": 25.4}
FIRST = 28_333_334


def settings(silent_ticks: int = 60, **density: object) -> Settings:
    section = {"tiling": "unused", "epsilon": 12.0, "window_ticks": 6, **density}
    return parse_settings({"region": REGION, "secret": {"env": "UNUSED"}, "density": section, "tick": {"silent_ticks": silent_ticks}})


TILING: Tiling = tile(Plane(settings().region.region()), 200, (4, 4))
LEAVES = len(TILING.tree.leaves)


def counts(*leaves: int, shard: int = 0) -> ShardCounts:
    leaf, count = np.unique(np.array(leaves, np.int64), return_counts=True)
    balance = dataclasses.replace(count_unclosed(shard, FIRST, np.zeros(0, RECORD)).balance, records=len(leaves), used=len(leaves))
    return ShardCounts(leaf, count.astype(np.int64), balance)


class Stream:
    """A publisher and its state, which goes through bytes after every tick, as in Flink."""

    def __init__(self, config: Settings | None = None, earlier: dict[int, int] | None = None, secret: bytes = SECRET) -> None:
        self.publisher = Publisher(config or settings(), secret, TILING, TILING.version, earlier or {})
        self.state = self.publisher.start(FIRST)

    def tick(self, *parts: ShardCounts) -> dict[str, list[dict[str, Any]]]:
        out, state = self.publisher.close(self.state, parts)
        self.state = PublisherState.load(state.dump())
        return {topic: [orjson.loads(line.split("\t")[1]) for line in lines] for topic, lines in out.items()}

    def record(self, *parts: ShardCounts) -> dict[str, Any]:
        (record,) = self.tick(*parts)["density"]
        return record


def adds_up(count: NDArray[np.int64]) -> bool:
    tree = TILING.tree
    return bool((tree.sums(count[tree.leaves]) == count).all() and (count >= 0).all())


EVERY = [
    {},
    {"neighbours": "add-remove"},
    {"noise": "discrete-gaussian"},
    {"budgets": "uniform"},
    {"smoothing": True},
    *({"schedule": name} for name in ("sample", "budget-distribution", "budget-absorption")),
]


@pytest.mark.parametrize("density", EVERY)
def test_counts_are_whole_not_negative_and_add_up_and_no_window_passes_the_limit(density: dict[str, object]) -> None:
    stream = Stream(settings(**density))
    rng = np.random.default_rng(5)
    spent = []
    for tick in range(30):
        users = rng.integers(0, 300) if tick % 7 else 0
        record = stream.record(counts(*rng.integers(0, LEAVES, users).tolist()))
        assert record["tick"] == FIRST + tick
        assert len(record["count"]) == len(record["unbiased"]) == len(record["standard_error"]) == len(TILING.tree)
        assert adds_up(np.array(record["count"]))
        if density.get("neighbours") != "add-remove" and record["action"] == "publish":
            assert record["count"][0] == users
        spent.append(record["charge"]["test"] + record["charge"]["publish"])
        assert sum(spent[-6:]) <= record["charge"]["limit"]
    assert any(spent)


def test_the_same_tick_is_the_same_record_and_one_user_more_draws_everything_anew() -> None:
    tick = (counts(1, 1, 2, shard=0), counts(5, shard=1))
    one, again, other = Stream().record(*tick), Stream().record(*reversed(tick)), Stream().record(*tick, counts(5))
    assert one == again
    assert one["look"] != other["look"]
    assert np.mean(np.array(one["unbiased"][1:]) != np.array(other["unbiased"][1:])) > 0.9
    assert one["look"] != Stream(secret=b"q" * 32).record(*tick)["look"]


def test_nobody_there_looks_like_every_other_tick() -> None:
    for neighbours in ("replace-one", "add-remove"):
        empty, full = (
            Stream(settings(neighbours=neighbours)).record(),
            Stream(settings(neighbours=neighbours)).record(counts(*range(LEAVES))),
        )
        assert empty.keys() == full.keys()
        assert {name: type(value) for name, value in empty.items()} == {name: type(value) for name, value in full.items()}
        assert len(empty["count"]) == len(full["count"])


def test_records_pause_for_public_silence_only() -> None:
    stream = Stream(settings(silent_ticks=2))
    assert [bool(stream.tick(*parts)) for parts in ([counts(1)], [], [], [], [], [counts(2)])] == [True, True, True, False, False, True]
    protected = Stream(settings(silent_ticks=2, neighbours="add-remove"))
    assert [bool(protected.tick(*parts)) for parts in ([counts(1)], [], [], [], [], [counts(2)])] == [True] * 6


def test_a_tick_that_is_not_published_repeats_the_last_tree_and_withholds_its_records() -> None:
    stream = Stream(settings(schedule="sample"))
    first = stream.record(counts(1, 2, 3))
    out = stream.tick(counts(4, 4, 4, 4))
    (second,), (balance,) = out["density"], out["balance"]
    assert second["action"] == "republish"
    assert second["stands"] == first["tick"]
    assert [second[name] for name in ("count", "unbiased", "standard_error", "level_units")] == [
        first[name] for name in ("count", "unbiased", "standard_error", "level_units")
    ]
    assert (balance["used"], balance["withheld"]) == (0, 4)


def test_smoothing_over_ticks_brings_a_constant_crowd_nearer_for_the_same_budget() -> None:
    crowd = [counts(*[3] * 200, *[9] * 50)]
    truth = TILING.tree.sums(np.bincount([3] * 200 + [9] * 50, minlength=LEAVES))
    errors = {}
    for smoothing in (False, True):
        stream = Stream(settings(epsilon=3.0, smoothing=smoothing))
        records = [stream.record(*crowd) for _ in range(30)]
        assert [record["charge"]["publish"] for record in records] == [500_000] * 30
        errors[smoothing] = np.std([np.array(record["unbiased"]) - truth for record in records[10:]])
    assert errors[True] < 0.7 * errors[False]


def test_what_earlier_runs_have_spent_is_not_spent_again() -> None:
    limit = 12_000_000
    stream = Stream(earlier={FIRST + 2: limit, FIRST - 1: limit // 6})
    records = [stream.record(counts(1)) for _ in range(9)]
    assert [record["action"] for record in records] == ["withhold"] * 8 + ["publish"]
    assert records[0]["count"] is None


def test_standard_errors_are_those_of_the_estimates() -> None:
    record = Stream(settings(epsilon=6.0)).record(counts(*[3] * 500))
    truth = np.zeros(LEAVES)
    truth[3] = 500
    error = np.array(
        [
            np.array(Stream(settings(epsilon=6.0), secret=bytes([k % 256, k // 256]) * 16).record(counts(*[3] * 500))["unbiased"])
            for k in range(300)
        ]
    )
    found = (error[:, TILING.tree.leaves] - truth).std(axis=0)
    promised = np.array(record["standard_error"])[TILING.tree.leaves]
    assert np.abs(found / promised - 1).max() < 0.25
    assert np.abs((error[:, TILING.tree.leaves] - truth).mean(axis=0) / promised).max() < 5 / np.sqrt(300)


def test_a_record_of_ten_thousand_nodes_is_below_200_kb() -> None:
    tiling = tile(Plane(settings().region.region()), 100, (100, 100))
    publisher = Publisher(settings(), SECRET, tiling, tiling.version)
    leaf = np.arange(len(tiling.tree.leaves), dtype=np.int64)
    crowd = ShardCounts(leaf, leaf % 50, counts().balance)
    out, _ = publisher.close(publisher.start(FIRST), [crowd])
    assert len(tiling.tree) > 10_000
    assert len(out["density"][0]) < 200_000


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(SettingsError, match="discrete-laplace"):
        settings(noise="discrete-gaussian", schedule="budget-absorption")
    with pytest.raises(ValueError, match="test_level"):
        Stream(settings(test_level=9))
    for epsilon in (0, -1, float("nan"), 1e-9):
        with pytest.raises(SettingsError, match="epsilon"):
            settings(epsilon=epsilon)
    with pytest.raises(ValueError, match="limit"):
        Stream(settings(epsilon=1e-6))
    for schedule, epsilon in (("budget-absorption", 400.0), ("budget-distribution", 500.0), ("sample", 400.0)):
        with pytest.raises(ValueError, match="Lower density"):
            Stream(settings(epsilon=epsilon, window_ticks=20, schedule=schedule))
    with pytest.raises(ValueError, match=r"\[density\]"):
        Publisher(parse_settings({"region": REGION, "secret": {"env": "X"}}), SECRET, TILING, "v")
    with pytest.raises(ValueError, match="version"):
        PublisherState.load(b'{"v": 9}')
