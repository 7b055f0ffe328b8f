"""The Python steps of the jobs as Flink calls them: each unpacks what Flink gives, calls `streaming`, and packs the answer."""

from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pyflink.common import Row, Types
from pyflink.datastream import KeyedBroadcastProcessFunction, KeyedProcessFunction, OutputTag, RuntimeContext
from pyflink.datastream.state import ListStateDescriptor, MapState, MapStateDescriptor, ValueStateDescriptor
from pyflink.table.udf import FunctionContext, ScalarFunction

from geo.anchors.index import AnchorIndex
from geo.tiling.tiling import Tiling
from streaming.closing import Closer
from streaming.counting import ShardCounts
from streaming.decode import Decoder, split_by_shard
from streaming.earlier import EarlierSpends
from streaming.policy import Deployment, Policy
from streaming.policy_admission import Admission, Admitted
from streaming.policy_log import rejected_policy_line, with_entry
from streaming.publisher import Publisher, PublisherState
from streaming.records import FIRST_POSITION_REASON, RECORD, Kind
from streaming.release import Outputs
from streaming.secret import SecretError, load_secret, secret_check
from streaming.settings import Product, Settings
from streaming.shard import ShardState, tick_grid
from streaming.ticks import TickGrid

__all__ = [
    "COUNTS",
    "EMITTED",
    "POLICIES",
    "REJECTED",
    "VERSIONS",
    "AdmitPolicies",
    "CloseTicks",
    "CloseTicksUnderPolicies",
    "LogMillis",
    "PackFixes",
    "PublishDensity",
]

EMITTED = Types.ROW_NAMED(["topic", "lines"], [Types.STRING(), Types.STRING()])
VERSIONS = Types.ROW([Types.STRING(), Types.LONG(), Types.LONG(), Types.PICKLED_BYTE_ARRAY()])
POLICIES = MapStateDescriptor("policies", Types.STRING(), Types.PICKLED_BYTE_ARRAY())
REJECTED = OutputTag("rejected", EMITTED)
COUNTS = OutputTag("counts", Types.ROW([Types.LONG(), Types.PICKLED_BYTE_ARRAY()]))
LINES_A_BLOCK = 500
LAST_WATERMARK = 2**63 - 1


def _worker_secret(settings: Settings, check: str) -> bytes:
    """Read the secret where the worker runs: it never travels with the job."""
    secret = load_secret(settings.secret)
    if secret_check(secret) != check:
        raise SecretError("this worker's secret is not the one the job was submitted with; give all of them the same secret")
    return secret


class PackFixes(ScalarFunction):  # type: ignore[misc]
    """Raw records of one batch -> one block of packed records for each shard.

    A vectorised function must return a row for each row. The first rows of its answer carry the shards' blocks, the others are
    empty, and the query drops these before they cost anything: so a batch crosses from Python as a few blocks.
    """

    def __init__(self, settings: Settings, check: str) -> None:
        self._settings, self._check = settings, check

    def open(self, function_context: FunctionContext) -> None:
        """Build the decoder, with the worker's own copy of the secret."""
        self._decoder = Decoder(self._settings.source, tick_grid(self._settings), _worker_secret(self._settings, self._check))

    def eval(self, values: pd.Series, log_time: pd.Series, partition: pd.Series, offset: pd.Series, source: int) -> pd.DataFrame:
        """Decode a batch of n records of one source; returns n rows (shard, block). Flink passes a literal as itself."""
        rows = self._decoder.decode(
            values.tolist(),
            log_time.to_numpy().astype("datetime64[ms]").astype(np.int64),
            partition.to_numpy(np.int64),
            offset.to_numpy(np.int64),
            source,
        )
        shards, blocks = split_by_shard(rows, self._settings.job.shards)
        empty = len(rows) - len(blocks)
        return pd.DataFrame({"shard": np.array([*shards, *[-1] * empty], np.int32), "block": [*blocks, *[None] * empty]})


class _Slots(MutableMapping[int, bytes]):
    """The ledger's slots in Flink's map state."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def __getitem__(self, slot: int) -> bytes:
        value = self._state.get(slot)
        if value is None:
            raise KeyError(slot)
        return bytes(value)

    def __setitem__(self, slot: int, value: bytes) -> None:
        self._state.put(slot, value)

    def __delitem__(self, slot: int) -> None:
        self._state.remove(slot)

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._state.keys()))

    def __len__(self) -> int:
        return len(list(self._state.keys()))

    def clear(self) -> None:
        """Remove every slot."""
        self._state.clear()


class _CloseTicks:
    """Blocks of one shard wait until their ticks close; then `Closer` turns each tick into lines, and counts for density.

    The watermark is the log clock: the lowest, over all partitions, of the highest log timestamp so far. Lines are the main output, the
    counts a side output `COUNTS`.

    Parameters
    ----------
    settings, check
        Settings, and the digest by which a worker knows the submitter's secret.
    products
        What the job publishes.
    horizon_ms
        For a bounded input, the log time up to which ticks close; what waits beyond it is accounted for and not released.
    earlier
        What earlier runs have spent on traces.
    tiling
        Density's public tree, or None.
    policy, anchors
        What audiences may learn, and the public places that it speaks of, or None.
    """

    def __init__(
        self,
        settings: Settings,
        check: str,
        products: tuple[Product, ...],
        horizon_ms: int | None,
        earlier: EarlierSpends,
        tiling: Tiling | None,
        policy: Policy | None = None,
        anchors: AnchorIndex | None = None,
    ) -> None:
        self._settings, self._check, self._products = settings, check, products
        self._horizon_ms, self._earlier, self._tiling = horizon_ms, earlier, tiling
        self._policy, self._anchors = policy, anchors

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state's handles and build the closer."""
        blob = Types.PICKLED_BYTE_ARRAY()
        self._pending = runtime_context.get_list_state(ListStateDescriptor("pending", blob))
        self._users = runtime_context.get_state(ValueStateDescriptor("users", blob))
        self._slots = _Slots(runtime_context.get_map_state(MapStateDescriptor("ledger", Types.LONG(), blob)))
        self._grid = tick_grid(self._settings)
        secret = _worker_secret(self._settings, self._check)
        self._closer = Closer(self._settings, secret, self._products, self._earlier, self._tiling, self._policy, self._anchors)

    def process_element(self, value: Row, ctx: Any) -> None:
        """Keep a block until its ticks close; what comes for a tick that has closed is late."""
        closed = _first_open(self._grid, ctx.timer_service().current_watermark(), self._horizon_ms) - 1
        rows = _late_for_closed(np.frombuffer(value[1], RECORD), closed)
        self._pending.add(rows.tobytes())
        self._wake(ctx, int(rows["tick"].min()))

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        """Close every tick that the log clock has passed."""
        watermark, shard = ctx.timer_service().current_watermark(), ctx.get_current_key()
        end = _first_open(self._grid, watermark, self._horizon_ms)
        state = ShardState.load(self._users.value(), self._slots, len(self._settings.audiences))
        rows = _late_for_closed(np.frombuffer(b"".join(self._pending.get()), RECORD), state.tick)
        rows = rows[np.argsort(rows["tick"], kind="stable")]
        waiting, closed = len(rows), False
        while (tick := self._due(state, rows)) is not None and tick < end:
            split = int(np.searchsorted(rows["tick"], tick, side="right"))
            yield from _emit(tick, self._closer.close(state, shard, tick, rows[:split]))
            rows, closed = rows[split:], True
        if watermark == LAST_WATERMARK:
            for tick in np.unique(rows["tick"]).tolist():
                yield from _emit(tick, self._closer.unclosed(shard, tick, rows[rows["tick"] == tick]))
            rows = rows[:0]
        if closed:
            self._users.update(state.dump())
        if len(rows) < waiting:
            self._pending.clear()
            if len(rows):
                self._pending.add(rows.tobytes())
        if watermark < LAST_WATERMARK and (tick := self._due(state, rows)) is not None:
            self._wake(ctx, tick)

    def _due(self, state: ShardState, rows: NDArray[np.void]) -> int | None:
        """Return the next tick at which this shard has something to do."""
        if state.active and state.tick is not None:
            return state.tick + 1
        ticks = [int(rows["tick"][0])] if len(rows) else []
        expiry = state.next_expiry(self._settings.privacy.window_ticks, self._settings.tick.silent_ticks)
        return min([*ticks, expiry] if expiry is not None else ticks, default=None)

    def _wake(self, ctx: Any, tick: int) -> None:
        _wake(ctx, self._grid, tick, self._horizon_ms)


class CloseTicks(_CloseTicks, KeyedProcessFunction):  # type: ignore[misc]
    """`_CloseTicks` under one policy."""


class CloseTicksUnderPolicies(_CloseTicks, KeyedBroadcastProcessFunction):  # type: ignore[misc]
    """`_CloseTicks` under policies and edits that come while the job runs; each holds from a tick that is still open then.

    They stand in the broadcast state by scope, as lists of `Entry`: of each scope those that can still hold.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state's handles; what a checkpoint holds is taken over before the first tick closes."""
        super().open(runtime_context)
        self._changed = True

    def process_broadcast_element(self, value: Row, ctx: Any) -> None:
        """Keep what was admitted, and forget what can hold no more."""
        scope, number, from_tick, record = value
        state = ctx.get_broadcast_state(POLICIES)
        first_open = self._grid.first_open(ctx.current_watermark() + 1)
        state.put(scope, with_entry(state.get(scope) or [], (number, from_tick, bytes(record)), first_open))
        self._changed = True

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        """Close ticks under what has been admitted."""
        if self._changed:
            self._closer.enforce(dict(ctx.get_broadcast_state(POLICIES).items()))
            self._changed = False
        yield from super().on_timer(timestamp, ctx)


class LogMillis(ScalarFunction):  # type: ignore[misc]
    """Log times -> milliseconds since 1970."""

    def eval(self, log_time: pd.Series) -> pd.Series:
        """Convert a batch."""
        return pd.Series(log_time.to_numpy().astype("datetime64[ms]").astype(np.int64))


class AdmitPolicies(KeyedProcessFunction):  # type: ignore[misc]
    """Records of the topic `policies`, under one key -> what is admitted of them; lines about the others to `REJECTED`.

    On their way here records lose their order. They wait until the topic's clock has passed them, which is before any tick closes in which
    they could hold, and then take their turns by offset: the clock at a record is the highest log time up to it.

    Parameters
    ----------
    settings
        Settings.
    policy
        The policy that holds at first, or None.
    deployment
        What a policy has to fit.
    """

    def __init__(self, settings: Settings, policy: Policy | None, deployment: Deployment) -> None:
        self._settings, self._policy, self._deployment = settings, policy, deployment

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state's handles."""
        blob = Types.PICKLED_BYTE_ARRAY()
        self._clock = runtime_context.get_state(ValueStateDescriptor("clock", Types.LONG()))
        self._waiting = runtime_context.get_map_state(MapStateDescriptor("waiting", Types.LONG(), blob))
        admitted = runtime_context.get_map_state(MapStateDescriptor("admitted", Types.STRING(), blob))
        self._admission = Admission(self._settings, self._policy, self._deployment, admitted)
        self._judged_to: int | None = None

    def process_element(self, value: Row, ctx: Any) -> None:
        """Keep a record: value, log time and offset."""
        record, log_ms, offset = value
        self._waiting.put(offset, (record, log_ms))
        ctx.timer_service().register_event_time_timer(log_ms - 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        """Judge the records that the clock has come to."""
        watermark = ctx.timer_service().current_watermark()
        if watermark == self._judged_to:
            # The first of the timers that fire at one watermark does the work of all.
            return
        self._judged_to = watermark
        clock, names = self._clock.value(), self._settings.topics
        for offset, (record, log_ms) in sorted(self._waiting.items()):
            clock = log_ms if clock is None else max(clock, log_ms)
            if clock > watermark + 1:
                # A watermark is a millisecond behind the clock, and whatever lies before the record that set it is here.
                break
            self._waiting.remove(offset)
            self._clock.update(clock)
            found = self._admission.admit(record, clock)
            if isinstance(found, Admitted):
                yield Row(*found)
            elif found is not None:
                yield REJECTED, Row(names.rejected, rejected_policy_line(found, names.policies, offset, log_ms))


class PublishDensity(KeyedProcessFunction):  # type: ignore[misc]
    """Counts of all shards, under one key, wait until their tick has closed in all of them; then `Publisher` turns each tick into lines.

    A shard's counts of a tick leave it before the watermark that closed the tick does, so that this watermark, once it is here, says
    that none are missing. Every tick has a turn, from the run's first on, whether or not there are counts: records have to come when
    nobody was there too. What starts the turns is the first record of the log, a heartbeat as well as a fix.

    Parameters
    ----------
    settings, check
        Settings, and the digest by which a worker knows the submitter's secret.
    first_tick, horizon_ms
        The run's first tick, or None if the log held nothing when it started: then it is that of the first record. For a bounded input,
        the log time up to which ticks close.
    earlier
        What earlier runs have spent on density, by tick.
    tiling, version
        Density's public tree, and the version of its file.
    """

    def __init__(
        self,
        settings: Settings,
        check: str,
        first_tick: int | None,
        horizon_ms: int | None,
        earlier: dict[int, int],
        tiling: Tiling,
        version: str,
    ) -> None:
        self._settings, self._check, self._first_tick, self._horizon_ms = settings, check, first_tick, horizon_ms
        self._earlier, self._tiling, self._version = earlier, tiling, version

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state's handles and build the publisher."""
        blob = Types.PICKLED_BYTE_ARRAY()
        self._pending = runtime_context.get_map_state(MapStateDescriptor("counts", Types.LONG(), blob))
        self._state = runtime_context.get_state(ValueStateDescriptor("stream", blob))
        self._grid = tick_grid(self._settings)
        self._publisher = Publisher(self._settings, _worker_secret(self._settings, self._check), self._tiling, self._version, self._earlier)

    def process_element(self, value: Row, ctx: Any) -> Iterator[Row]:
        """Keep a shard's counts until the tick's turn; if a clock stepped back and it has had that, only account for them."""
        tick, counts = value[0], bytes(value[1])
        state = self._state.value()
        if state is not None and tick <= PublisherState.load(state).tick:
            yield from _blocks(self._publisher.unclosed([ShardCounts.load(counts)]))
            return
        waiting = self._pending.get(tick)
        self._pending.put(tick, counts if waiting is None else waiting + b"\n" + counts)
        if state is None and self._first_tick is not None:
            self._wake(ctx, self._first_tick)
        self._wake(ctx, tick)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Row]:
        """Give every tick that the log clock has passed its turn."""
        watermark, saved = ctx.timer_service().current_watermark(), self._state.value()
        waiting = sorted(self._pending.keys())
        if saved is not None:
            state = PublisherState.load(saved)
        else:
            state = self._publisher.start(waiting[0] if self._first_tick is None else self._first_tick)
        # Without a horizon, an input that ends does so by a request to stop: ticks that are open then stay open.
        drained = watermark == LAST_WATERMARK and self._horizon_ms is None
        end = state.tick + 1 if drained else _first_open(self._grid, watermark, self._horizon_ms)
        before = state.tick
        while state.tick + 1 < end:
            later = (tick for tick in waiting if tick > state.tick)
            state = self._publisher.pause(state, min(next(later, end), end))
            if state.tick + 1 < end:
                outputs, state = self._publisher.close(state, self._take(state.tick + 1))
                yield from _blocks(outputs)
        if watermark == LAST_WATERMARK:
            for tick in sorted(self._pending.keys()):
                yield from _blocks(self._publisher.unclosed(self._take(tick)))
        if state.tick > before:
            self._state.update(state.dump())
        if watermark < LAST_WATERMARK:
            self._wake(ctx, state.tick + 1)

    def _take(self, tick: int) -> list[ShardCounts]:
        waiting = self._pending.get(tick)
        if waiting is None:
            return []
        self._pending.remove(tick)
        return [ShardCounts.load(counts) for counts in waiting.split(b"\n")]

    def _wake(self, ctx: Any, tick: int) -> None:
        _wake(ctx, self._grid, tick, self._horizon_ms)


def _first_open(grid: TickGrid, watermark: int, horizon_ms: int | None) -> int:
    """Return the lowest tick that stays open at a watermark."""
    end = grid.first_open(watermark + 1)
    return end if horizon_ms is None else min(end, grid.first_open(horizon_ms))


def _wake(ctx: Any, grid: TickGrid, tick: int, horizon_ms: int | None) -> None:
    """Ask to be called when a tick closes; one beyond the horizon is looked at when the input has ended."""
    beyond = horizon_ms is not None and tick >= grid.first_open(horizon_ms)
    # A timer behind the watermark that is set anew whenever it fires would never let the watermark pass.
    ctx.timer_service().register_event_time_timer(LAST_WATERMARK if beyond else grid.closes_ms(tick) - 1)


def _late_for_closed(rows: NDArray[np.void], last_closed: int | None) -> NDArray[np.void]:
    """Mark records of ticks that have closed as late: their partition's log clock had stepped back."""
    if last_closed is None or not (behind := rows["tick"] <= last_closed).any():
        return rows
    rows = rows.copy()
    kind = rows["kind"]
    kind[behind & ((kind == Kind.FIX) | (kind >= FIRST_POSITION_REASON))] = Kind.LATE
    for name in ("lat_e7", "lon_e7"):
        rows[name][behind] = 0
    rows["tick"][behind] = last_closed + 1
    return rows


def _emit(tick: int, closed: tuple[Outputs, bytes | None]) -> Iterator[Any]:
    outputs, counts = closed
    yield from _blocks(outputs)
    if counts is not None:
        yield COUNTS, Row(tick, counts)


def _blocks(outputs: Outputs) -> Iterator[Row]:
    for topic, lines in outputs.items():
        for start in range(0, len(lines), LINES_A_BLOCK):
            yield Row(topic, "\n".join(lines[start : start + LINES_A_BLOCK]))
