"""Second step of a replay: rows in any order -> the same rows in one order, in bounded memory.

No library of the core installation sorts more than memory holds; databases that do are large dependencies for one merge.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.ipc

__all__ = ["ExternalSort"]

ROWS_IN_MEMORY = 1_000_000
BLOCK_ROWS = 16_384
MAX_RUNS = 64


class ExternalSort:
    """Sort any number of rows: sorted runs go to disk when memory is full, and are merged a block at a time.

    Rows that agree in all keys come in no stated order. Memory holds `rows_in_memory` rows, or while merging one block of each of at
    most `MAX_RUNS` runs, but at least all rows that share one value of the first key.

    Parameters
    ----------
    schema : Schema
        Columns of the rows.
    keys : sequence of str
        Columns to sort by; the first one holds int64 without nulls. Nulls of the others come last.
    folder : Path
        Existing folder, for a temporary one that is removed in the end.
    rows_in_memory, block_rows : int
        Rows of one run, and of one block, at least 1.
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        folder: Path,
        rows_in_memory: int = ROWS_IN_MEMORY,
        block_rows: int = BLOCK_ROWS,
    ) -> None:
        self._schema, self._keys = schema, [(key, "ascending") for key in keys]
        self._limit, self._block_rows = rows_in_memory, block_rows
        self._folder = tempfile.TemporaryDirectory(prefix="sorting-", dir=folder)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._runs: list[Path] = []
        self._made = 0
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._folder.cleanup()

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows of `schema`."""
        self._waiting.append(rows)
        self._waiting_rows += len(rows)
        self.rows += len(rows)
        if self._waiting_rows >= self._limit:
            self._runs.append(self._write(self._blocks(self._sort(pa.Table.from_batches(self._waiting, self._schema)))))
            self._waiting, self._waiting_rows = [], 0

    def sorted(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, in blocks that are not empty; can be called again, and more rows may follow afterwards."""
        rest = self._sort(pa.Table.from_batches(self._waiting, self._schema))
        if not self._runs:
            yield from self._blocks(rest)
            return
        while len(self._runs) > MAX_RUNS:
            first = self._runs[:MAX_RUNS]
            self._runs = [*self._runs[MAX_RUNS:], self._write(self._merge([_read(path) for path in first]))]
            for path in first:
                path.unlink()
        yield from self._merge([*(_read(path) for path in self._runs), self._blocks(rest)])

    def _sort(self, rows: pa.Table) -> pa.Table:
        return rows.sort_by(self._keys)

    def _blocks(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        return (block for block in rows.combine_chunks().to_batches(self._block_rows) if len(block))

    def _write(self, blocks: Iterator[pa.RecordBatch]) -> Path:
        path = Path(self._folder.name) / f"{self._made}.arrow"
        self._made += 1
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, self._schema) as writer:
            for block in blocks:
                writer.write_batch(block)
        return path

    def _merge(self, runs: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """Merge sorted runs: what lies below the lowest last key of all runs that go on is complete."""
        heads = [head for run in runs if (head := _Head(run, self._schema, self._keys[0][0])).load()]
        while heads:
            bound = min((head.last for head in heads if not head.ended), default=None)
            taken = [part for head in heads if len(part := head.take_below(bound))]
            if taken:
                yield from self._blocks(self._sort(pa.concat_tables(taken)))
            for head in heads:
                if not head.ended and head.last == bound:
                    head.load()
            heads = [head for head in heads if len(head.rows)]


class _Head:
    """What has been read of a run and not been taken yet; not empty as long as the run goes on."""

    def __init__(self, run: Iterator[pa.RecordBatch], schema: pa.Schema, key: str) -> None:
        self._run, self._key = run, key
        self.rows: Any = schema.empty_table()
        self.ended = False

    @property
    def last(self) -> int:
        return int(self.rows[self._key][-1].as_py())

    def load(self) -> bool:
        """Read one more block; return whether there is anything left."""
        block = next(self._run, None)
        if block is None:
            self.ended = True
        else:
            self.rows = pa.concat_tables([self.rows, pa.Table.from_batches([block])])
        return bool(len(self.rows))

    def take_below(self, bound: int | None) -> Any:
        """Take the rows whose first key is below a bound, or all."""
        end = len(self.rows) if bound is None else int(np.searchsorted(self.rows[self._key].to_numpy(), bound))
        taken, self.rows = self.rows.slice(0, end), self.rows.slice(end)
        return taken


def _read(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as reader:
        yield from reader
