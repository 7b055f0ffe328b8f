"""Any number of rows come out in one order, with little of them in memory."""

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobs.replay import sorting
from jobs.replay.sorting import ExternalSort

SCHEMA = pa.schema([("t", pa.int64()), ("user", pa.string()), ("lat", pa.float64())])
KEYS = ("t", "user", "lat")
ROW = st.tuples(st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1), st.text(max_size=2), st.none() | st.floats(-1, 1))


def batch(rows: list[tuple[int, str, float | None]]) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(column, kind.type) for column, kind in zip(zip(*rows, strict=True), SCHEMA, strict=True)], schema=SCHEMA
    )


def in_order(rows: list[tuple[int, str, float | None]]) -> list[tuple[int, str, float | None]]:
    return sorted(rows, key=lambda row: (row[0], row[1].encode(), row[2] is None, row[2] or 0.0))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.lists(ROW, min_size=1, max_size=8), max_size=12), st.integers(1, 9), st.integers(1, 4))
def test_every_row_comes_out_once_in_order_whatever_fits_in_memory(
    tmp_path: Path, parts: list[list[tuple[int, str, float | None]]], rows_in_memory: int, block: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "MAX_RUNS", 3)
        with ExternalSort(SCHEMA, KEYS, tmp_path, rows_in_memory, block) as sort:
            for part in parts:
                sort.add(batch(part))
            for _ in range(2):
                blocks = list(sort.sorted())
                assert all(0 < len(rows) <= block for rows in blocks)
                found = [tuple(row.values()) for rows in blocks for row in rows.to_pylist()]
                assert found == in_order([row for part in parts for row in part])
            assert sort.rows == len(found)
    assert not list(tmp_path.iterdir())


def test_memory_does_not_grow_with_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "MAX_RUNS", 8)

    def peak(count: int) -> int:
        before = pa.total_allocated_bytes()
        highest = 0
        with ExternalSort(SCHEMA, KEYS, tmp_path, rows_in_memory=20_000, block_rows=512) as sort:
            for start in range(0, count, 5_000):
                t = (np.arange(start, start + 5_000) * 7_919) % count
                sort.add(pa.record_batch([pa.array(t), pa.array(["somebody"] * 5_000), pa.array(t / count)], schema=SCHEMA))
            last = -1
            for block in sort.sorted():
                assert block["t"][0].as_py() > last
                last = block["t"][-1].as_py()
                highest = max(highest, pa.total_allocated_bytes() - before)
        return highest

    tracemalloc.start()
    small, small_python = peak(200_000), tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    large, large_python = peak(1_000_000), tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert large < 3 * small
    assert large_python < 3 * small_python
