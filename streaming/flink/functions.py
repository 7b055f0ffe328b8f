"""The steps that decode records and close ticks, as Flink calls them: each unpacks what Flink gives, calls `streaming`, and packs again."""

from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pyflink.common import Row, Types
from pyflink.datastream import KeyedBroadcastProcessFunction, KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ListStateDescriptor, MapState, MapStateDescriptor, ValueStateDescriptor
from pyflink.table.udf import FunctionContext, ScalarFunction

from geo.anchors.index import AnchorIndex
from geo.tiling.tiling import Tiling
from streaming.closing import Closer
from streaming.decode import Decoder, split_by_shard
from streaming.earlier import EarlierSpends
from streaming.flink.common import COUNTS, LAST_WATERMARK, POLICIES, blocks, first_open, log_millis, wake, worker_secret
from streaming.policy import Policy
from streaming.policy_log import with_entry
from streaming.records import FIRST_POSITION_REASON, RECORD, Kind
from streaming.release import Outputs
from streaming.settings import Product, Settings
from streaming.shard import ShardState, tick_grid

__all__ = ["CloseTicks", "CloseTicksUnderPolicies", "PackFixes"]


class PackFixes(ScalarFunction):  # type: ignore[misc]
    """Raw records of one batch -> one block of packed records for each shard.

    A vectorised function must return a row for each row. The first rows of its answer carry the shards' blocks, the others are
    empty, and the query drops these before they cost anything: so a batch crosses from Python as a few blocks.
    """

    def __init__(self, settings: Settings, check: str) -> None:
        self._settings, self._check = settings, check

    def open(self, function_context: FunctionContext) -> None:
        """Build the decoder, with the worker's own copy of the secret."""
        self._decoder = Decoder(self._settings.source, tick_grid(self._settings), worker_secret(self._settings, self._check))

    def eval(self, values: pd.Series, log_time: pd.Series, partition: pd.Series, offset: pd.Series, source: int) -> pd.DataFrame:
        """Decode a batch of n records of one source; returns n rows (shard, block). Flink passes a literal as itself."""
        rows = self._decoder.decode(
            values.tolist(),
            log_millis(log_time),
            partition.to_numpy(np.int64),
            offset.to_numpy(np.int64),
            source,
        )
        shards, packed = split_by_shard(rows, self._settings.job.shards)
        empty = len(rows) - len(packed)
        return pd.DataFrame({"shard": np.array([*shards, *[-1] * empty], np.int32), "block": [*packed, *[None] * empty]})


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
        secret = worker_secret(self._settings, self._check)
        self._closer = Closer(self._settings, secret, self._products, self._earlier, self._tiling, self._policy, self._anchors)

    def process_element(self, value: Row, ctx: Any) -> None:
        """Keep a block until its ticks close; what comes for a tick that has closed is late."""
        closed = first_open(self._grid, ctx.timer_service().current_watermark(), self._horizon_ms) - 1
        rows = _late_for_closed(np.frombuffer(value[1], RECORD), closed)
        self._pending.add(rows.tobytes())
        self._wake(ctx, int(rows["tick"].min()))

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        """Close every tick that the log clock has passed."""
        watermark, shard = ctx.timer_service().current_watermark(), ctx.get_current_key()
        end = first_open(self._grid, watermark, self._horizon_ms)
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
        wake(ctx, self._grid, tick, self._horizon_ms)


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
        still_open = first_open(self._grid, ctx.current_watermark(), self._horizon_ms)
        state.put(scope, with_entry(state.get(scope) or [], (number, from_tick, bytes(record)), still_open))
        self._changed = True

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        """Close ticks under what has been admitted."""
        if self._changed:
            self._closer.enforce(dict(ctx.get_broadcast_state(POLICIES).items()))
            self._changed = False
        yield from super().on_timer(timestamp, ctx)


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
    yield from blocks(outputs)
    if counts is not None:
        yield COUNTS, Row(tick, counts)
