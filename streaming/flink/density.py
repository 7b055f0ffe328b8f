"""The step that publishes density, as Flink calls it."""

from collections.abc import Iterator
from typing import Any

from pyflink.common import Row, Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import MapStateDescriptor, ValueStateDescriptor

from geo.tiling.tiling import Tiling
from streaming.counting import ShardCounts
from streaming.flink.common import LAST_WATERMARK, blocks, first_open, wake, worker_secret
from streaming.publisher import Publisher, PublisherState
from streaming.settings import Settings
from streaming.shard import tick_grid

__all__ = ["PublishDensity"]


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
        self._publisher = Publisher(self._settings, worker_secret(self._settings, self._check), self._tiling, self._version, self._earlier)

    def process_element(self, value: Row, ctx: Any) -> Iterator[Row]:
        """Keep a shard's counts until the tick's turn; if a clock stepped back and it has had that, only account for them."""
        tick, counts = value[0], bytes(value[1])
        state = self._state.value()
        if state is not None and tick <= PublisherState.load(state).tick:
            yield from blocks(self._publisher.unclosed([ShardCounts.load(counts)]))
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
        end = state.tick + 1 if drained else first_open(self._grid, watermark, self._horizon_ms)
        before = state.tick
        while state.tick + 1 < end:
            later = (tick for tick in waiting if tick > state.tick)
            state = self._publisher.pause(state, min(next(later, end), end))
            if state.tick + 1 < end:
                outputs, state = self._publisher.close(state, self._take(state.tick + 1))
                yield from blocks(outputs)
        if watermark == LAST_WATERMARK:
            for tick in sorted(self._pending.keys()):
                yield from blocks(self._publisher.unclosed(self._take(tick)))
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
        wake(ctx, self._grid, tick, self._horizon_ms)
