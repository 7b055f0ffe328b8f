"""Last step of a replay to files: what a run published -> Parquet datasets, in one order, whatever order it came in."""

from collections.abc import Mapping
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.kafka.reading import read_committed
from jobs.replay.sorting import ExternalSort
from streaming.settings import KafkaSettings, Product, Settings

__all__ = ["datasets_of", "write_dataset"]

WIDE_ROWS, WIDE_BLOCK = 1_000, 32
"""Rows of density hold a whole tree: few of them fill the memory."""

TEXT, WHOLE, REAL = pa.string(), pa.int64(), pa.float64()
CANDIDATE = pa.struct([("anchor", TEXT), ("category", TEXT), ("lat", REAL), ("lon", REAL), ("share", REAL)])
TRACES = pa.schema(
    [
        *(("v", WHOLE), ("user", TEXT), ("tick", WHOLE), ("start_ms", WHOLE), ("status", TEXT), ("reason", TEXT), ("form", TEXT)),
        *(("lat", REAL), ("lon", REAL), ("anchor", TEXT), ("category", TEXT), ("candidates", pa.list_(CANDIDATE)), ("look", TEXT)),
        *(("r50_m", REAL), ("r95_m", REAL), ("mechanism", TEXT), ("radius_m", REAL), ("epsilon_micro", WHOLE), ("budget", TEXT)),
        ("policy", WHOLE),
    ]
)
RELEASES = pa.schema(
    [
        *(("v", WHOLE), ("tick", WHOLE), ("shard", WHOLE), ("audience", TEXT), ("enrolled", WHOLE), ("released", WHOLE)),
        *(("absent", WHOLE), ("withheld", WHOLE), ("epsilon_micro", WHOLE)),
    ]
)
CHARGE = pa.struct([("unit", TEXT), ("test", WHOLE), ("publish", WHOLE), ("limit", WHOLE), ("window_ticks", WHOLE)])
DENSITY = pa.schema(
    [
        *(("v", WHOLE), ("tick", WHOLE), ("start_ms", WHOLE), ("tree", TEXT), ("neighbours", TEXT), ("schedule", TEXT), ("action", TEXT)),
        *(("smoothed", pa.bool_()), ("look", TEXT), ("charge", CHARGE), ("stands", WHOLE), ("level_units", pa.list_(WHOLE))),
        *(("count", pa.list_(WHOLE)), ("unbiased", pa.list_(REAL)), ("standard_error", pa.list_(REAL))),
    ]
)
OUTCOMES = ("records", "used", "merged", "duplicate", "late", "rejected", "withheld", "control", "unclosed")
BALANCE = pa.schema([("v", WHOLE), ("product", TEXT), ("tick", WHOLE), ("shard", WHOLE), *((name, WHOLE) for name in OUTCOMES)])
REJECTED = pa.schema([("v", WHOLE), ("reason", TEXT), ("topic", TEXT), ("partition", WHOLE), ("offset", WHOLE), ("log_ms", WHOLE)])
LATE = pa.schema([("v", WHOLE), ("user", TEXT), ("tick", WHOLE), ("late_ms", WHOLE), ("partition", WHOLE), ("offset", WHOLE)])

ROW = pa.schema([("at", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])


def datasets_of(settings: Settings, products: tuple[Product, ...]) -> dict[str, tuple[str, pa.Schema]]:
    """Name the files of a run, with the topic that each is made from and its columns.

    What is below `operators` may go to no audience. The topic `charges` is no dataset: it stays with the broker, for later runs.
    """
    names = settings.topics
    found: dict[str, tuple[str, pa.Schema]] = {}
    if "traces" in products:
        found |= {f"{topic}.parquet": (topic, TRACES) for topic in settings.trace_topics}
        found["releases.parquet"] = (names.releases, RELEASES)
    if "density" in products:
        found["density.parquet"] = (names.density, DENSITY)
    beside = {"balance": (names.balance, BALANCE), "rejected": (names.rejected, REJECTED), "late": (names.late, LATE)}
    return found | {f"operators/{name}.parquet": source for name, source in beside.items()}


def write_dataset(path: Path, broker: KafkaSettings, topic: str, after: Mapping[int, int], schema: pa.Schema, folder: Path) -> int:
    """Write the committed rows of a topic as a Parquet file, sorted by tick (rejected ones by log time) and key; return their number.

    Columns are those of the schema, and no others.

    Parameters
    ----------
    path : Path
        The file; it appears when it is whole.
    broker, topic, after
        Where the rows are, and from which offsets on.
    schema : Schema
        Columns.
    folder : Path
        Where rows are sorted that do not fit in memory.
    """
    order = "tick" if "tick" in schema.names else "log_ms"
    sizes = (WIDE_ROWS, WIDE_BLOCK) if schema is DENSITY else ()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    with ExternalSort(ROW, ROW.names, folder, *sizes) as sort:
        waiting: list[dict[str, object]] = []
        for *_, key, value in read_committed(broker, topic, after):
            if value is not None:
                waiting.append({"at": orjson.loads(value)[order], "key": key or b"", "value": value})
            if len(waiting) >= WIDE_ROWS:
                sort.add(pa.RecordBatch.from_pylist(waiting, ROW))
                waiting = []
        sort.add(pa.RecordBatch.from_pylist(waiting, ROW))
        with pq.ParquetWriter(draft, schema) as writer:
            for block in sort.sorted():
                writer.write_table(pa.Table.from_pylist([orjson.loads(value) for value in block["value"].to_pylist()], schema))
        rows = sort.rows
    draft.replace(path)
    return rows
