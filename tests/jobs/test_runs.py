"""Which starts are second looks."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jobs.errors import UserError
from jobs.protect import _last_run
from jobs.runs import admit, alone, earlier_density, earlier_spends, forget_checkpoints, latest_checkpoint
from streaming.charges import CHARGE
from streaming.runs import Partition, Run, fingerprint, names_digest
from streaming.settings import Settings, parse_settings

SECRET = b"k" * 32


def settings(**sections: object) -> Settings:
    region = {"name": "r", "south": 60.0, "west": 24.5, "north": 60.4, "east": 25.4}
    return parse_settings({"region": region, "secret": {"env": "UNUSED"}, **sections})


NAMES = names_digest(SECRET, settings(), "traces")
FIRST = Run(
    "one",
    {"traces": NAMES},
    False,
    {"traces": (10, 5)},
    60_000,
    100,
    119,
    7_230_000,
    (Partition("fixes", "id", 0, 0, 9, 6_000_000, 7_230_000),),
    1,
)


def test_an_identical_run_is_no_second_look() -> None:
    admit(replace(FIRST, started_ms=2), [FIRST], spend_again=False)


def test_a_different_run_over_the_same_time_needs_a_word() -> None:
    other = replace(FIRST, fingerprint="two", first_tick=119, last_tick=None)
    with pytest.raises(UserError, match="--spend-again"):
        admit(other, [FIRST], spend_again=False)
    admit(other, [FIRST], spend_again=True)
    admit(replace(other, first_tick=120), [FIRST], spend_again=False)


@pytest.mark.parametrize(
    "sections",
    [
        {"tick": {"length_s": 30}},
        {"privacy": {"radius_m": 150}},
        {"topics": {"charges": "elsewhere"}},
    ],
)
def test_what_could_not_be_charged_is_refused(sections: dict[str, object]) -> None:
    names = names_digest(SECRET, settings(**sections), "traces")
    assert names != NAMES
    with pytest.raises(UserError, match="could not be charged"):
        admit(replace(FIRST, fingerprint="two", names={"traces": names}), [FIRST], spend_again=True)
    assert names_digest(b"q" * 32, settings(), "traces") != NAMES


def test_ticks_of_another_length_are_compared_by_time() -> None:
    halves = replace(FIRST, fingerprint="two", names={"traces": "other"}, tick_ms=30_000, first_tick=238, last_tick=300)
    with pytest.raises(UserError, match="could not be charged"):
        admit(halves, [FIRST], spend_again=True)
    # FIRST ends at 7,200 s, and its window reaches 4 ticks of a minute on
    admit(replace(halves, first_tick=248), [FIRST], spend_again=False)


def test_names_that_change_within_a_window_are_refused() -> None:
    after = replace(FIRST, fingerprint="two", names={"traces": "other"}, first_tick=123, last_tick=130)
    with pytest.raises(UserError, match="could not be charged"):
        admit(after, [FIRST], spend_again=True)
    admit(replace(after, first_tick=124), [FIRST], spend_again=False)
    before = replace(after, first_tick=90, last_tick=96)
    with pytest.raises(UserError, match="could not be charged"):
        admit(before, [FIRST], spend_again=True)
    with pytest.raises(UserError, match="could not be charged"):
        admit(replace(before, last_tick=95, limits={"traces": (10, 7)}), [FIRST], spend_again=True)
    admit(replace(before, last_tick=95), [FIRST], spend_again=False)


def test_a_topic_made_again_is_another_input() -> None:
    again = (replace(FIRST.inputs[0], topic_id="another"),)
    prints = {fingerprint(SECRET, settings(), ["traces"], inputs, 7_230_000, {}) for inputs in (FIRST.inputs, again)}
    assert len(prints) == 2


def test_a_policy_counts_by_its_content_not_by_its_path() -> None:
    def of(path: str, digest: str) -> str:
        return fingerprint(SECRET, settings(policy=path), ["traces"], FIRST.inputs, 7_230_000, {"policy": digest})

    assert of("a.toml", "1") == of("b.toml", "1") != of("a.toml", "2")


def test_density_and_traces_are_different_looks_but_share_what_they_say_of_presence() -> None:
    density = replace(FIRST, fingerprint="two", names={"density": "d"}, limits={"density": (10, 5)})
    admit(density, [FIRST], spend_again=False)
    admit(FIRST, [density], spend_again=False)
    with pytest.raises(UserError, match="--spend-again"):
        admit(replace(density, fingerprint="three"), [FIRST, density], spend_again=False)
    with pytest.raises(UserError, match="could not be charged"):
        admit(replace(density, fingerprint="three", names={"density": "e"}), [density], spend_again=True)
    hiding = replace(density, protects_presence=True)
    for run, earlier in (
        (hiding, FIRST),
        (FIRST, hiding),
        (replace(hiding, names={"density": "d", "traces": "t"}, limits={"density": (10, 5), "traces": (10, 5)}), density),
    ):
        with pytest.raises(UserError, match="who is present"):
            admit(run, [earlier], spend_again=True)
    admit(hiding, [replace(FIRST, first_tick=200, last_tick=300)], spend_again=False)


def test_spent_density_is_loaded_once_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def record(tick: int, look: str, test: int = 1) -> dict[str, object]:
        return {"tick": tick, "look": look, "charge": {"test": test, "publish": 10}}

    found = [record(95, "a"), record(96, "b"), record(96, "b"), record(96, "c"), record(123, "d"), record(124, "e")]
    monkeypatch.setattr("jobs.runs.documents", lambda *_: iter(found))
    monkeypatch.setattr("jobs.runs.require_settled", lambda *_: None)
    first = replace(FIRST, names={"density": "d"})
    run = replace(first, fingerprint="two")  # ticks 100 .. 119, windows of 5 ticks
    assert earlier_density(settings(), run, [first], tmp_path, resume=False) == {96: 22, 123: 11}
    assert earlier_density(settings(), run, [], tmp_path, resume=True) == {96: 22, 123: 11}
    assert earlier_density(settings(), run, [FIRST], tmp_path, resume=False) == {}


@pytest.mark.parametrize("limits", [(11, 5), (10, 4)])
def test_a_promise_is_not_weakened_before_a_window_has_passed(limits: tuple[int, int]) -> None:
    weaker = replace(FIRST, fingerprint="two", limits={"traces": limits}, first_tick=122, last_tick=130)
    with pytest.raises(UserError, match="lower limit or a longer window"):
        admit(weaker, [FIRST], spend_again=True)
    admit(replace(weaker, first_tick=124), [FIRST], spend_again=False)
    admit(replace(weaker, limits={"traces": (9, 6)}), [FIRST], spend_again=True)


def test_density_of_the_other_relation_is_refused_nearby() -> None:
    def named(neighbours: str) -> str:
        return names_digest(SECRET, settings(density={"tiling": "t", "neighbours": neighbours}), "density")

    assert named("replace-one") != named("add-remove")


def test_a_run_is_not_resumed_after_another_look_at_its_ticks() -> None:
    config = settings()
    print_of = fingerprint(SECRET, config, ["traces"], FIRST.inputs, FIRST.horizon_ms, {})
    last = replace(FIRST, fingerprint=print_of)
    other = replace(FIRST, fingerprint="two", names={"traces": NAMES, "density": "d"})
    assert _last_run(config, SECRET, ["traces"], {}, [last]) == last
    with pytest.raises(UserError, match="has looked at some of these ticks since"):
        _last_run(config, SECRET, ["traces"], {}, [last, other])
    later = replace(other, first_tick=300, last_tick=310)
    assert _last_run(config, SECRET, ["traces"], {}, [last, later]) == last


def test_a_run_survives_its_record() -> None:
    assert Run.load(FIRST.dump()) == FIRST


def test_spends_of_a_window_before_and_after_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    charged = np.array([(1, tick, 2, 7) for tick in (94, 95, 107, 119, 123, 124)], CHARGE)
    monkeypatch.setattr("jobs.runs.require_settled", lambda *_: None)
    monkeypatch.setattr("jobs.runs.charges", lambda _: iter([charged[:2], charged[2:], charged]))
    run = replace(FIRST, fingerprint="two")  # ticks 100 .. 119
    spends = earlier_spends(settings(privacy={"window_ticks": 5}), run, [FIRST], tmp_path, resume=False)
    assert spends.charges["tick"].tolist() == [107, 119, 123]
    assert earlier_spends(settings(), run, [], tmp_path, resume=True).charges["tick"].tolist() == [107, 119, 123]


def test_one_job_a_run(tmp_path: Path) -> None:
    with alone(tmp_path), pytest.raises(UserError, match="still goes on"), alone(tmp_path):
        pass
    with alone(tmp_path):
        pass


def test_the_newest_complete_checkpoint(tmp_path: Path) -> None:
    for job, number in (("a", 3), ("b", 1)):
        (tmp_path / job / f"chk-{number}").mkdir(parents=True)
        (tmp_path / job / f"chk-{number}" / "_metadata").touch()
    (tmp_path / "b" / "chk-2").mkdir()
    forget_checkpoints(tmp_path, except_job="b")
    assert latest_checkpoint(tmp_path) == tmp_path / "b" / "chk-1"
    forget_checkpoints(tmp_path)
    assert latest_checkpoint(tmp_path) is None
