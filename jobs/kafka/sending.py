"""Sending records, and learning what became of each one."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import kafka
import orjson
from kafka import errors as kafka_errors

from jobs.errors import UserError
from jobs.kafka.connect import TIMEOUT_MS, admin_client, is_outage, partition_consumer, plain_errors
from jobs.kafka.security import client_options
from jobs.kafka.topics import config_value
from jobs.preflight import require_topics
from streaming import records
from streaming.settings import KafkaSettings

__all__ = ["HEARTBEAT", "Record", "SendReport", "heartbeat", "send_all"]

HEARTBEAT = orjson.dumps(records.HEARTBEAT)
"""Value of the record that moves a partition's log clock when no device speaks."""

Record = tuple[str, int | None, bytes | None, bytes | None, int | None]
"""Topic, partition or None, key, value, timestamp in milliseconds or None."""

DELIVERY_MS = 30_000
SETTLE_S = DELIVERY_MS / 1000 + 15
CLOSE_S = 5.0
BATCH_BYTES = 256 * 1024
MAX_IN_FLIGHT = 20_000
PROGRESS_EVERY = 1_000


@dataclass(frozen=True)
class SendReport:
    """What became of the records given to :func:`send_all`.

    Attributes
    ----------
    sent : int
        Records that the broker acknowledged.
    failed : mapping of str to int
        Records that were refused, counted by the name of the reason.
    """

    sent: int
    failed: Mapping[str, int]


def send_all(broker: KafkaSettings, records: Iterable[Record], progress: Callable[[int], None] | None = None) -> SendReport:
    """Send records and learn what became of each one.

    Parameters
    ----------
    broker : KafkaSettings
        Where the broker is, and how it is reached.
    records : iterable of Record
        Topic, partition (None: by the hash of the key), key, value, timestamp in milliseconds (None: now).
    progress : callable, optional
        Called now and then, and at the end, with the number of records that are settled.

    Returns
    -------
    SendReport
        How many were acknowledged, and how many were refused for which reason. A refused record does not stop the others.

    Raises
    ------
    UserError
        If the broker stops answering, or a topic does not exist.
    """
    tally = _Tally(progress)
    by_topic: dict[str, Any] = {}
    with plain_errors(broker), ExitStack() as open_producers:
        by_limit: dict[int, Any] = {}
        for topic, partition, key, value, timestamp_ms in records:
            producer = by_topic.get(topic)
            if producer is None:
                limit = _max_message_bytes(broker, topic)
                producer = by_limit.get(limit) or open_producers.enter_context(_producer(broker, limit))
                by_topic[topic] = by_limit[limit] = producer
            try:
                tally.add(producer.send(topic, value=value, key=key, partition=partition, timestamp_ms=timestamp_ms))
            except (kafka_errors.MessageSizeTooLargeError, ValueError, AssertionError) as error:
                tally.refuse(error)
        # No flush(): in kafka-python 3.0 it can raise without cause. Waiting for each record does the same.
        return tally.report()


def heartbeat(broker: KafkaSettings, topic: str, timestamp_ms: int | None = None) -> int:
    """Write one heartbeat into every partition of a topic.

    Parameters
    ----------
    broker : KafkaSettings
        Where the broker is, and how it is reached.
    topic : str
        Name of an existing topic.
    timestamp_ms : int, optional
        Event time of the heartbeat in a replay; by default the time of writing.

    Returns
    -------
    int
        Number of partitions.

    Raises
    ------
    UserError
        If a partition did not take it: the job would stall there.
    """
    with partition_consumer(broker, topic) as (_, partitions):
        numbers = [partition.partition for partition in partitions]
    report = send_all(broker, [(topic, number, None, HEARTBEAT, timestamp_ms) for number in numbers])
    if report.failed:
        raise UserError(f"Topic {topic} refused heartbeats ({', '.join(sorted(report.failed))}): correct its settings, or jobs stall.")
    return len(numbers)


class _Tally:
    """Settles the futures of sent records in the order of sending, with a bounded number of them open."""

    def __init__(self, progress: Callable[[int], None] | None) -> None:
        self._open: deque[Any] = deque()
        self._sent = 0
        self._failed: Counter[str] = Counter()
        self._progress = progress

    def add(self, future: Any) -> None:
        self._open.append(future)
        while self._open and (self._open[0].is_done or len(self._open) > MAX_IN_FLIGHT):
            self._settle(self._open.popleft())

    def refuse(self, error: BaseException) -> None:
        self._failed[type(error).__name__] += 1
        self._tell(every=PROGRESS_EVERY)

    def report(self) -> SendReport:
        while self._open:
            self._settle(self._open.popleft())
        self._tell(every=1)
        return SendReport(self._sent, dict(self._failed))

    def _settle(self, future: Any) -> None:
        try:
            future.get(timeout=SETTLE_S)
        except kafka_errors.KafkaError as error:
            if is_outage(error):
                raise
            self.refuse(error)
        else:
            self._sent += 1
            self._tell(every=PROGRESS_EVERY)

    def _tell(self, every: int) -> None:
        settled = self._sent + self._failed.total()
        if self._progress is not None and settled % every == 0:
            self._progress(settled)


def _max_message_bytes(broker: KafkaSettings, topic: str) -> int:
    require_topics(broker, topic)
    with admin_client(broker) as admin:
        return int(config_value(admin, topic, "max.message.bytes"))


@contextmanager
def _producer(broker: KafkaSettings, max_message_bytes: int) -> Iterator[Any]:
    """Open a producer whose batches fit the topic: a batch that the broker finds too large would lose its small records as well."""
    producer = kafka.KafkaProducer(
        **client_options(broker),
        acks="all",
        linger_ms=20,
        batch_size=min(BATCH_BYTES, max_message_bytes),
        max_request_size=max_message_bytes,
        bootstrap_timeout_ms=TIMEOUT_MS,
        request_timeout_ms=TIMEOUT_MS,
        delivery_timeout_ms=DELIVERY_MS,
        max_block_ms=TIMEOUT_MS,
    )
    try:
        yield producer
    finally:
        try:
            producer.close(timeout=CLOSE_S)
        except kafka_errors.KafkaError:
            # With the broker gone, close() gives up and leaves its thread running: end that first, which drops what was not sent.
            producer._sender.force_close()
            producer._sender.join(CLOSE_S)
            producer.close(timeout=CLOSE_S)
