"""What the Python steps of the jobs share: what flows between them, the worker's secret, and the clock that closes ticks."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pyflink.common import Row, Types
from pyflink.datastream import OutputTag
from pyflink.datastream.state import MapStateDescriptor

from streaming.release import Outputs
from streaming.secret import SecretError, load_secret, secret_check
from streaming.settings import Settings
from streaming.ticks import TickGrid

__all__ = ["COUNTS", "EMITTED", "LAST_WATERMARK", "POLICIES", "blocks", "first_open", "log_millis", "wake", "worker_secret"]

EMITTED = Types.ROW_NAMED(["topic", "lines"], [Types.STRING(), Types.STRING()])
COUNTS = OutputTag("counts", Types.ROW([Types.LONG(), Types.PICKLED_BYTE_ARRAY()]))
POLICIES = MapStateDescriptor("policies", Types.STRING(), Types.PICKLED_BYTE_ARRAY())
LINES_A_BLOCK = 500
LAST_WATERMARK = 2**63 - 1


def worker_secret(settings: Settings, check: str) -> bytes:
    """Read the secret where the worker runs: it never travels with the job."""
    secret = load_secret(settings.secret)
    if secret_check(secret) != check:
        raise SecretError("this worker's secret is not the one the job was submitted with; give all of them the same secret")
    return secret


def log_millis(log_time: pd.Series) -> NDArray[np.int64]:
    """Return log times, as a vectorised function gets them, in milliseconds since 1970."""
    return np.asarray(log_time.to_numpy().astype("datetime64[ms]").astype(np.int64))


def first_open(grid: TickGrid, watermark: int, horizon_ms: int | None) -> int:
    """Return the lowest tick that stays open at a watermark."""
    end = grid.first_open(watermark + 1)
    return end if horizon_ms is None else min(end, grid.first_open(horizon_ms))


def wake(ctx: Any, grid: TickGrid, tick: int, horizon_ms: int | None) -> None:
    """Ask to be called when a tick closes; one beyond the horizon is looked at when the input has ended."""
    beyond = horizon_ms is not None and tick >= grid.first_open(horizon_ms)
    # A timer behind the watermark that is set anew whenever it fires would never let the watermark pass.
    ctx.timer_service().register_event_time_timer(LAST_WATERMARK if beyond else grid.closes_ms(tick) - 1)


def blocks(outputs: Outputs) -> Iterator[Row]:
    """Gather lines into rows (topic, lines): one element a row would cost the crossing from Python once a line."""
    for topic, lines in outputs.items():
        for start in range(0, len(lines), LINES_A_BLOCK):
            yield Row(topic, "\n".join(lines[start : start + LINES_A_BLOCK]))
