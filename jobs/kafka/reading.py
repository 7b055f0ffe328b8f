"""Reading what a topic holds now, once: ranges of the log, and committed records."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from kafka import errors as kafka_errors

from jobs.kafka.connect import partition_consumer
from streaming.settings import KafkaSettings

__all__ = ["LogRange", "documents", "end_offsets", "last_records", "log_ranges", "read_committed"]

STALL_S = 30.0
POLL_MS = 200


@dataclass(frozen=True)
class LogRange:
    """What a reader of committed records finds in one partition.

    Attributes
    ----------
    begin_offset, end_offset : int
        First offset, and the one after the last record; equal if there is no record. Control records of transactions may lie between.
    first_ms, last_ms : int or None
        Timestamps of the first and the last record; None if there is no record.
    """

    begin_offset: int
    end_offset: int
    first_ms: int | None
    last_ms: int | None


def log_ranges(broker: KafkaSettings, topic: str) -> dict[int, LogRange]:
    """Look up where each partition begins and ends, in offsets and in log time.

    Parameters
    ----------
    broker : KafkaSettings
        Where the broker is, and how it is reached.
    topic : str
        Name of an existing topic.

    Returns
    -------
    dict of int to LogRange
        One entry per partition.
    """
    with partition_consumer(broker, topic) as (consumer, partitions):
        begins, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        ranges = {}
        for partition in partitions:
            begin, end = begins[partition], ends[partition]
            first = next(_drain(consumer, {partition: (begin, end)}), None)
            last = None if first is None else _last_record(consumer, partition, begin, end)
            ranges[partition.partition] = (
                LogRange(begin, begin, None, None)
                if first is None or last is None
                else LogRange(begin, last.offset + 1, first.timestamp, last.timestamp)
            )
        return ranges


def last_records(broker: KafkaSettings, topic: str) -> dict[int, tuple[bytes | None, int]]:
    """Read the last committed record of each partition.

    Parameters
    ----------
    broker : KafkaSettings
        Where the broker is, and how it is reached.
    topic : str
        Name of an existing topic.

    Returns
    -------
    dict of int to tuple of (bytes or None, int)
        Value and timestamp in milliseconds; a partition without records has no entry.
    """
    with partition_consumer(broker, topic) as (consumer, partitions):
        begins, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        found = {part.partition: _last_record(consumer, part, begins[part], ends[part]) for part in partitions}
        return {number: (record.value, record.timestamp) for number, record in found.items() if record is not None}


def read_committed(
    broker: KafkaSettings, topic: str, after: Mapping[int, int] | None = None
) -> Iterator[tuple[int, int, int, bytes | None, bytes | None]]:
    """Read all committed records that a topic holds now, then end.

    Parameters
    ----------
    broker : KafkaSettings
        Where the broker is, and how it is reached.
    topic : str
        Name of an existing topic.
    after : mapping of int to int, optional
        Offset of each partition at which to begin; by default its first.

    Yields
    ------
    tuple of (int, int, int, bytes or None, bytes or None)
        Partition, offset, timestamp in milliseconds, key, value; in the order of offsets within a partition. Records of aborted
        transactions, and those behind the first open one, are not among them.
    """
    with partition_consumer(broker, topic) as (consumer, partitions):
        begins, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        ranges = {part: (begins[part] if after is None else max(begins[part], after[part.partition]), ends[part]) for part in partitions}
        for record in _drain(consumer, ranges):
            yield record.partition, record.offset, record.timestamp, record.key, record.value


def end_offsets(broker: KafkaSettings, topic: str) -> dict[int, int]:
    """Look up the offset after all that each partition of a topic holds, whatever transactions became of.

    Parameters
    ----------
    broker : KafkaSettings
        Where the broker is, and how it is reached.
    topic : str
        Name of an existing topic.
    """
    with partition_consumer(broker, topic, committed_only=False) as (consumer, partitions):
        return {part.partition: offset for part, offset in consumer.end_offsets(partitions).items()}


def documents(broker: KafkaSettings, topic: str) -> Iterator[dict[str, Any]]:
    """Read all committed JSON documents that a topic of the product holds now, then end.

    Parameters
    ----------
    broker : KafkaSettings
        Where the broker is, and how it is reached.
    topic : str
        Name of an existing topic, whose values are JSON objects or empty.
    """
    for *_, value in read_committed(broker, topic):
        if value is not None:
            yield orjson.loads(value)


def _last_record(consumer: Any, partition: Any, begin: int, end: int) -> Any:
    """Find the last record before `end`: the last offsets may be control records, so look back further each time."""
    back = 1
    while True:
        start = max(begin, end - back)
        last = deque(_drain(consumer, {partition: (start, end)}), maxlen=1)
        if last or start == begin:
            return last[0] if last else None
        back *= 4


def _drain(consumer: Any, ranges: Mapping[Any, tuple[int, int]]) -> Iterator[Any]:
    """Yield the records of half-open offset ranges; ends when each position has passed its end, with or without a record there."""
    consumer.assign(list(ranges))
    for partition, (begin, _) in ranges.items():
        consumer.seek(partition, begin)
    remaining = {partition for partition, (begin, end) in ranges.items() if begin < end}
    consumer.resume(*remaining)  # an earlier call may have paused them
    consumer.pause(*(set(ranges) - remaining))
    deadline = time.monotonic() + STALL_S
    positions: dict[Any, int] = {}
    while remaining:
        for partition, records in consumer.poll(timeout_ms=POLL_MS).items():
            for record in records:
                if record.offset < ranges[partition][1]:
                    yield record
        for partition in list(remaining):
            position = consumer.position(partition)
            if position != positions.get(partition):
                positions[partition] = position
                deadline = time.monotonic() + STALL_S
            if position >= ranges[partition][1]:
                remaining.remove(partition)
                consumer.pause(partition)
        if time.monotonic() > deadline:
            raise kafka_errors.KafkaTimeoutError
