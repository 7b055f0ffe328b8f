"""The stateful step as Flink calls it, with Flink's state and timers held by the test."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyflink.common import Row

from geo.plane import Plane
from geo.tiling.tiling import tile
from streaming.audiences import deployment_of
from streaming.counting import count_tick
from streaming.decode import Decoder
from streaming.earlier import EarlierSpends
from streaming.flink.common import LAST_WATERMARK
from streaming.flink.density import PublishDensity
from streaming.flink.functions import CloseTicks, CloseTicksUnderPolicies
from streaming.flink.policies import REJECTED, AdmitPolicies
from streaming.policy import parse_policy
from streaming.policy_log import Version
from streaming.records import RECORD
from streaming.secret import load_secret, secret_check
from streaming.settings import Settings, parse_settings
from streaming.shard import tick_grid

TICK = 28_333_334


class Value:
    def __init__(self) -> None:
        self.now: Any = None

    def value(self) -> Any:
        return self.now

    def update(self, value: Any) -> None:
        self.now = value


class Items(list[bytes]):
    add = list.append

    def get(self) -> Iterator[bytes]:
        return iter(list(self))


class Slots(dict[Any, Any]):
    put = dict.__setitem__
    remove = dict.__delitem__


class Shard:
    """One key of the step."""

    def __init__(self, folder: Path, horizon_ms: int | None = None) -> None:
        (folder / "secret").write_text("6b" * 32)
        region = {"name": "helsinki", "south": 60.0, "west": 24.5, "north": 60.4, "east": 25.4}
        self.settings = parse_settings({"region": region, "secret": {"file": str(folder / "secret")}})
        self.grid = tick_grid(self.settings)
        self.secret = load_secret(self.settings.secret)
        self.step = CloseTicks(self.settings, secret_check(self.secret), ("traces",), horizon_ms, EarlierSpends.none(), None)
        self.pending, self.timers, self.watermark, self.firing = Items(), set[int](), -(2**63), False
        users, slots = Value(), Slots()
        self.handles = SimpleNamespace(get_list_state=lambda _: self.pending, get_state=lambda _: users, get_map_state=lambda _: slots)
        self.step.open(self.handles)
        timers = SimpleNamespace(current_watermark=lambda: self.watermark, register_event_time_timer=self.register)
        self.context = SimpleNamespace(timer_service=lambda: timers, get_current_key=lambda: 0)

    def send(self, tick: int, log_ms: int, user: str = "a") -> None:
        decoder = Decoder(self.settings.source, self.grid, self.secret)
        value = orjson.dumps({"user": user, "t": tick * 60_000, "lat": 60.2, "lon": 24.9})
        rows = decoder.decode([value], np.array([log_ms]), np.zeros(1, int), np.zeros(1, int))
        self.step.process_element(Row(0, rows.tobytes()), self.context)

    def register(self, timer: int) -> None:
        assert timer > self.watermark or not self.firing, "a timer behind the watermark would fire for ever"
        self.timers.add(timer)

    def advance(self, watermark: int) -> dict[str, list[dict[str, Any]]]:
        """Let time pass; return the rows that came out, by topic."""
        self.watermark = watermark
        self.firing = False
        out: dict[str, list[dict[str, Any]]] = {}
        while due := sorted(timer for timer in self.timers if timer <= watermark):
            self.timers.remove(due[0])
            self.firing = True
            for topic, lines in self.step.on_timer(due[0], self.context):
                out.setdefault(topic, []).extend(orjson.loads(line.split("\t")[1]) for line in lines.split("\n"))
        self.firing = False
        return out


def test_a_tick_closes_when_the_log_clock_has_passed_it(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    shard.send(TICK, TICK * 60_000 + 1)
    assert shard.advance(shard.grid.closes_ms(TICK) - 2) == {}
    out = shard.advance(shard.grid.closes_ms(TICK) - 1)
    assert [row["status"] for row in out["traces"]] == ["released"]
    assert [row["status"] for row in shard.advance(shard.grid.closes_ms(TICK + 2) - 1)["traces"]] == ["absent"] * 2


def test_a_record_of_a_closed_tick_is_late_even_if_its_own_log_time_stepped_back(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    shard.send(TICK, TICK * 60_000 + 1)
    shard.advance(shard.grid.closes_ms(TICK) - 1)
    shard.send(TICK, TICK * 60_000 + 2)
    out = shard.advance(shard.grid.closes_ms(TICK + 1) - 1)
    assert (out["balance"][0]["late"], out["balance"][0]["used"], len(out["late"])) == (1, 0, 1)
    assert [row["status"] for row in out["traces"]] == ["absent"]


def test_one_partition_may_end_long_after_the_horizon(tmp_path: Path) -> None:
    shard = Shard(tmp_path, horizon_ms=(TICK + 1) * 60_000 + 30_000)
    shard.send(TICK, TICK * 60_000 + 1)
    shard.send(TICK + 5, (TICK + 5) * 60_000 + 1)
    assert [row["tick"] for row in shard.advance((TICK + 9) * 60_000)["traces"]] == [TICK]
    shard.send(TICK + 6, (TICK + 9) * 60_000 + 1)
    out = shard.advance(LAST_WATERMARK)
    assert "traces" not in out
    assert sum(row["records"] for row in out["balance"]) == 2


def test_what_waits_beyond_the_horizon_is_accounted_for_and_not_released(tmp_path: Path) -> None:
    shard = Shard(tmp_path, horizon_ms=(TICK + 1) * 60_000 + 30_000)
    shard.send(TICK, TICK * 60_000 + 1)
    shard.send(TICK + 1, (TICK + 1) * 60_000 + 1)
    out = shard.advance(LAST_WATERMARK)
    assert [(row["tick"], row["status"]) for row in out["traces"]] == [(TICK, "released")]
    assert [(row["used"], row["withheld"], row["unclosed"]) for row in out["balance"]] == [(1, 0, 0), (0, 1, 1)]
    assert not shard.pending


class Merge:
    """The publishing step under its one key."""

    def __init__(self, folder: Path, first_tick: int | None, horizon_ms: int | None = None, silent_ticks: int = 60) -> None:
        (folder / "secret").write_text("6b" * 32)
        region = {"name": "helsinki", "south": 60.0, "west": 24.5, "north": 60.4, "east": 25.4}
        settings = parse_settings(
            {
                "region": region,
                "secret": {"file": str(folder / "secret")},
                "density": {"tiling": "unused", "epsilon": 6.0, "window_ticks": 3},
                "tick": {"silent_ticks": silent_ticks},
            }
        )
        self.grid = tick_grid(settings)
        tiling = tile(Plane(settings.region.region()), 200, (4, 4))
        check = secret_check(load_secret(settings.secret))
        self.step = PublishDensity(settings, check, first_tick, horizon_ms, {}, tiling, tiling.version)
        self.pending, self.state, self.timers, self.watermark = Slots(), Value(), set[int](), -(2**63)
        self.step.open(SimpleNamespace(get_state=lambda _: self.state, get_map_state=lambda _: self.pending))
        timers = SimpleNamespace(current_watermark=lambda: self.watermark, register_event_time_timer=self.timers.add)
        self.context = SimpleNamespace(timer_service=lambda: timers)

    def send(self, tick: int, users: int, shard: int = 0) -> list[dict[str, Any]]:
        rows = np.zeros(users, RECORD)
        rows["user"], rows["tick"], rows["lat_e7"], rows["lon_e7"] = np.arange(1, users + 1), tick, 602_000_000, 249_000_000
        counts = count_tick(self.step._tiling, shard, tick, rows).dump()
        return [orjson.loads(lines.split("\t")[1]) for _, lines in self.step.process_element(Row(tick, counts), self.context)]

    def advance(self, watermark: int) -> dict[str, list[dict[str, Any]]]:
        """Let time pass; return the rows that came out, by topic."""
        self.watermark = watermark
        out: dict[str, list[dict[str, Any]]] = {}
        while due := sorted(timer for timer in self.timers if timer <= watermark):
            self.timers.remove(due[0])
            for topic, lines in self.step.on_timer(due[0], self.context):
                out.setdefault(topic, []).extend(orjson.loads(line.split("\t")[1]) for line in lines.split("\n"))
        return out


def test_every_tick_has_a_record_from_the_first_on_and_all_shards_are_in_it(tmp_path: Path) -> None:
    merge = Merge(tmp_path, first_tick=TICK)
    merge.send(TICK + 2, 5, shard=0)
    merge.send(TICK + 2, 7, shard=1)
    assert merge.advance(merge.grid.closes_ms(TICK) - 2) == {}
    out = merge.advance(merge.grid.closes_ms(TICK + 2) - 1)
    assert [(row["tick"], row["count"][0]) for row in out["density"]] == [(TICK, 0), (TICK + 1, 0), (TICK + 2, 12)]
    assert sorted((row["shard"], row["used"]) for row in out["balance"]) == [(0, 5), (1, 7)]
    assert [row["tick"] for row in merge.advance(merge.grid.closes_ms(TICK + 4) - 1)["density"]] == [TICK + 3, TICK + 4]


def test_density_beyond_the_horizon_is_accounted_for_and_not_published(tmp_path: Path) -> None:
    merge = Merge(tmp_path, first_tick=TICK, horizon_ms=(TICK + 2) * 60_000 + 30_000)
    merge.send(TICK, 5)
    merge.send(TICK + 3, 4)
    out = merge.advance(LAST_WATERMARK)
    assert [row["tick"] for row in out["density"]] == [TICK, TICK + 1]
    assert [(row["used"], row["withheld"]) for row in out["balance"]] == [(5, 0), (0, 4)]
    assert not merge.pending


def test_a_live_run_that_is_drained_publishes_no_open_tick(tmp_path: Path) -> None:
    merge = Merge(tmp_path, first_tick=TICK)
    merge.send(TICK, 5)
    out = merge.advance(LAST_WATERMARK)
    assert "density" not in out
    assert [(row["used"], row["withheld"]) for row in out["balance"]] == [(0, 5)]


def test_a_log_that_held_nothing_begins_with_its_first_record(tmp_path: Path) -> None:
    merge = Merge(tmp_path, first_tick=None)
    merge.send(TICK + 1, 2, shard=1)
    merge.send(TICK, 3)
    assert [row["tick"] for row in merge.advance(merge.grid.closes_ms(TICK + 2) - 1)["density"]] == [TICK, TICK + 1, TICK + 2]


def test_counts_of_a_tick_that_has_had_its_turn_are_accounted_for_at_once(tmp_path: Path) -> None:
    merge = Merge(tmp_path, first_tick=TICK)
    merge.send(TICK, 3)
    merge.advance(merge.grid.closes_ms(TICK + 5) - 1)
    (balance,) = merge.send(TICK + 2, 4)
    assert (balance["used"], balance["withheld"]) == (0, 4)
    assert not merge.pending


def test_years_of_public_silence_are_skipped(tmp_path: Path) -> None:
    merge = Merge(tmp_path, first_tick=TICK, silent_ticks=3)
    merge.send(TICK, 5)
    late = TICK + 500_000
    merge.send(late, 2)
    out = merge.advance(merge.grid.closes_ms(late) - 1)
    assert [row["tick"] - TICK for row in out["density"]] == [0, 1, 2, 3, 500_000]


class Admits:
    """The step that judges records of the topic `policies`, under its one key."""

    def __init__(self, settings: Settings) -> None:
        first = parse_policy({"version": 1, "user_edits": True, "rule": [FULL]})
        self.step = AdmitPolicies(settings, first, deployment_of(settings, None))
        self.clock, self.waiting, self.admitted, self.timers, self.watermark = Value(), Slots(), Slots(), set[int](), -(2**63)
        timers = SimpleNamespace(current_watermark=lambda: self.watermark, register_event_time_timer=self.timers.add)
        self.context = SimpleNamespace(timer_service=lambda: timers)
        self.restore()

    def restore(self) -> None:
        """Go on as after a checkpoint: with the state alone."""
        states = {"waiting": self.waiting, "admitted": self.admitted}
        self.step.open(SimpleNamespace(get_state=lambda _: self.clock, get_map_state=lambda of: states[of.name]))

    def send(self, record: bytes, log_ms: int, offset: int) -> None:
        self.step.process_element(Row(record, log_ms, offset), self.context)

    def advance(self, watermark: int) -> tuple[list[Row], list[str]]:
        """Let time pass; return what is admitted, and the keys of what is rejected."""
        self.watermark = watermark
        admitted, rejected = [], []
        while due := sorted(timer for timer in self.timers if timer <= watermark):
            self.timers.remove(due[0])
            for row in self.step.on_timer(due[0], self.context):
                if isinstance(row, Row):
                    admitted.append(row)
                else:
                    assert row[:1] == (REJECTED,)
                    assert row[1][0] == "rejected"
                    rejected.append(row[1][1].split("\t")[0])
        return admitted, rejected


FULL = {"subject": "default", "audience": "*", "level": "full"}


def version(number: int, from_tick: int = TICK, **more: Any) -> bytes:
    return Version(from_tick, parse_policy({"version": number, "rule": [FULL], **more})).dump()


def edit(user: str, number: int) -> bytes:
    return orjson.dumps({"wayveil": "policy-edit", "user": user, "version": number, "rule": []})


def test_a_tick_that_has_closed_stays_closed_where_nobody_was_enrolled(tmp_path: Path) -> None:
    """The policy of that tick may be forgotten by now, so it must not be asked again."""
    shard = Shard(tmp_path)
    shard.advance(shard.grid.closes_ms(TICK + 5))
    shard.send(TICK, shard.grid.start_ms(TICK) + 1)  # a log clock that has stepped back
    out = shard.advance(shard.grid.closes_ms(TICK + 6))
    assert "traces" not in out
    assert [row["tick"] for row in out["late"]] == [TICK]
    assert sum(row["late"] for row in out["balance"]) == 1


def test_policies_take_their_turns_by_offset_once_their_clock_has_come_to_them(tmp_path: Path) -> None:
    step = Admits(Shard(tmp_path).settings)
    for number, log_ms, offset in ((4, 30, 2), (2, 10, 0), (3, 20, 1), (5, 99, 4), (3, 40, 3)):
        step.send(version(number), log_ms, offset)
    admitted, rejected = step.advance(40)
    assert [row[:3] for row in map(list, admitted)] == [["deployment", number, TICK] for number in (2, 3, 4)]
    assert rejected == ["policy-3"]
    assert list(step.waiting) == [4]
    step.restore()
    assert [row[1] for row in step.advance(98)[0]] == [5]


def test_a_clock_that_steps_back_does_not_bring_the_past_back(tmp_path: Path) -> None:
    """The record behind the step is judged after the one before it, at the clock that that one set; the same in one go and bit by bit."""
    late, early = (TICK + 5) * 60_000, (TICK - 5) * 60_000
    found = []
    for marks in ((late + 1,), (early, early + 1, late - 1, late + 1)):
        step = Admits(Shard(tmp_path).settings)
        step.send(version(2, TICK), early, 1)
        step.send(b"{}", late, 0)
        seen = [step.advance(mark) for mark in marks]
        found.append(([row[1] for admitted, _ in seen for row in admitted], [key for _, keys in seen for key in keys]))
    assert found == [([], ["policy-0", "policy-1"])] * 2


RECORDS = st.sampled_from(
    [
        version(2, TICK + 3000),
        version(3, TICK + 1500),
        version(4, TICK + 2900),
        version(5, TICK + 9000, user_edits=True),
        *(edit("ann", number) for number in range(1, 5)),
        edit("bob", 1),
        b"{",
    ]
)


@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 4000), RECORDS), max_size=8), st.randoms())
def test_neither_order_of_arrival_nor_restarts_have_a_say(tmp_path: Path, log: list[tuple[int, bytes]], random: Any) -> None:
    settings = Shard(tmp_path).settings
    log = [(TICK * 60_000 + minute * 60_000, record) for minute, record in sorted(log)]
    at_once, by_and_by = Admits(settings), Admits(settings)
    shuffled = random.sample([*enumerate(log)], len(log))
    for offset, (log_ms, record) in shuffled:
        at_once.send(record, log_ms, offset)
    wanted = at_once.advance(LAST_WATERMARK)
    admitted: list[Row] = []
    rejected: list[str] = []
    # A record is here before the clock comes to it.
    while shuffled:
        chosen = min(random.randrange(len(shuffled)) + 1, len(shuffled))
        clock = sorted(log_ms for _, (log_ms, _) in shuffled)[chosen - 1]
        for offset, (log_ms, record) in [one for one in shuffled if one[1][0] <= clock]:
            by_and_by.send(record, log_ms, offset)
        shuffled = [one for one in shuffled if one[1][0] > clock]
        more_admitted, more_rejected = by_and_by.advance(clock)
        admitted += more_admitted
        rejected += more_rejected
        by_and_by.restore()
    assert (admitted, rejected) == wanted


class ShardUnderPolicies(Shard):
    """One key of the step that also gets what is admitted."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.broadcast = Slots()
        self.context.get_broadcast_state = lambda _: self.broadcast
        self.context.current_watermark = lambda: self.watermark
        self.start()

    def start(self) -> None:
        """Start a worker with the state that there is."""
        first = parse_policy({"version": 1, "user_edits": True, "rule": [FULL]})
        with_policies = (("traces",), None, EarlierSpends.none(), None, first, None)
        self.step = CloseTicksUnderPolicies(self.settings, secret_check(self.secret), *with_policies)
        self.step.open(self.handles)


def test_edits_hold_from_their_tick_and_survive_a_restart(tmp_path: Path) -> None:
    shard = ShardUnderPolicies(tmp_path)
    rows = []
    for tick in range(TICK, TICK + 6):
        shard.send(tick, tick * 60_000 + 1)
        if tick == TICK + 1:
            shard.step.process_broadcast_element(Row("user:a", 1, TICK + 2, edit("a", 1)), shard.context)
        if tick in (TICK + 2, TICK + 5):
            shard.start()
        if tick == TICK + 3:
            rule = {"audience": "*", "level": "perturbed", "radius_m": 800}
            mine = orjson.dumps({"wayveil": "policy-edit", "user": "a", "version": 2, "rule": [rule]})
            shard.step.process_broadcast_element(Row("user:a", 2, TICK + 4, mine), shard.context)
        out = shard.advance(shard.grid.closes_ms(tick) - 1)
        rows.append([row["radius_m"] for row in out.get("traces", [])])
    assert rows == [[200], [200], [], [], [800], [800]]
    shard.step.process_broadcast_element(Row("user:a", 3, TICK + 9, edit("a", 3)), shard.context)
    assert [entry[0] for entry in shard.broadcast["user:a"]] == [2, 3], "the first edit can hold no more"
