"""Around the jobs: what the programs themselves ask of Kafka – topics, ranges, reading a topic once, sending, heartbeats."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import kafka
from kafka import TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType

from jobs.errors import UserError
from jobs.preflight import require_broker, require_topics
from streaming.settings import Settings

__all__ = [
    "HEARTBEAT",
    "LogRange",
    "Record",
    "SendReport",
    "TopicSpec",
    "committed_offsets",
    "create_topics",
    "heartbeat",
    "is_ready",
    "log_ranges",
    "product_topics",
    "read_committed",
    "send_all",
    "topic_names",
]

HEARTBEAT = b'{"wayveil":"heartbeat"}'
"""Value of the record that moves a partition's log clock when no device speaks."""

TIMEOUT_MS = 15_000
STALL_S = 30.0
DELIVERY_MS = 30_000
SETTLE_S = DELIVERY_MS / 1000 + 15
CLOSE_S = 5.0
POLL_MS = 200
BATCH_BYTES = 256 * 1024
MAX_IN_FLIGHT = 20_000
PROGRESS_EVERY = 10_000

FOR_EVER = {"retention.ms": "-1"}
EVENT_TIME = {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": str(2**63 - 1), **FOR_EVER}
"""A replay writes event times, which may lie years back: retention by time would delete them at once."""

Record = tuple[str, int | None, bytes | None, bytes | None, int | None]
"""Topic, partition or None, key, value, timestamp in milliseconds or None."""


@dataclass(frozen=True)
class TopicSpec:
    """How a topic is to be created.

    Attributes
    ----------
    partitions : int
        Number of partitions, at least 1.
    config : mapping of str to str
        Settings of the topic; ``message.timestamp.type`` is ``LogAppendTime`` unless it is given here.
    """

    partitions: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


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


def product_topics(settings: Settings, partitions: int, *, replay: bool = False) -> dict[str, TopicSpec]:
    """Name the topics that a deployment needs.

    Parameters
    ----------
    settings : Settings
        Names of the topics.
    partitions : int
        Partitions of each topic that is read in parallel, at least 1.
    replay : bool
        Whether the inputs carry event times instead of the broker's clock.

    Returns
    -------
    dict of str to TopicSpec
        Inputs, products, and the operator's topics. `runs` is ordered as a whole, so it has one partition.
    """
    names = settings.topics
    return {
        **{source.topic: TopicSpec(partitions, EVENT_TIME if replay else {}) for source in settings.source},
        names.runs: TopicSpec(1, FOR_EVER),
        names.traces: TopicSpec(partitions, FOR_EVER),
        names.releases: TopicSpec(partitions, FOR_EVER),
        **{name: TopicSpec(partitions) for name in (names.rejected, names.late, names.balance)},
    }


def is_ready(bootstrap: str) -> bool:
    """Tell whether a broker answers a request for its topics.

    Parameters
    ----------
    bootstrap : str
        Address of the broker.
    """
    try:
        admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap, bootstrap_timeout_ms=2_000, request_timeout_ms=2_000)
    except (kafka_errors.KafkaError, OSError):
        return False
    try:
        return bool(admin.describe_cluster()["brokers"])
    except (kafka_errors.KafkaError, OSError):
        return False
    finally:
        admin.close()


def topic_names(bootstrap: str) -> set[str]:
    """Give the names of all topics.

    Parameters
    ----------
    bootstrap : str
        Address of the broker.
    """
    with _admin(bootstrap) as admin:
        return set(admin.list_topics())


def create_topics(bootstrap: str, topics: Mapping[str, TopicSpec]) -> list[str]:
    """Create the topics that do not exist yet.

    Parameters
    ----------
    bootstrap : str
        Address of the broker.
    topics : mapping of str to TopicSpec
        What each topic is to be.

    Returns
    -------
    list of str
        Names of those that were created now.

    Raises
    ------
    UserError
        If a topic exists with another number of partitions or another kind of timestamp: both change what a job computes.
    """
    with _admin(bootstrap) as admin:
        present = set(admin.list_topics())
        for name in sorted(present & topics.keys()):
            _check_existing(admin, name, topics[name])
        new = [name for name in topics if name not in present]
        if new:
            wanted = {
                name: {"num_partitions": topics[name].partitions, "replication_factor": -1, "configs": _full_config(topics[name])}
                for name in new
            }
            answer = admin.create_topics(wanted, raise_errors=False)
            for topic in answer["topics"]:
                error = kafka_errors.for_code(topic["error_code"])
                if error not in (kafka_errors.NoError, kafka_errors.TopicAlreadyExistsError):
                    raise UserError(f"The broker refused to create topic {topic['name']} ({error.__name__}): correct its settings.")
            admin.wait_for_topics(new)
        return new


def log_ranges(bootstrap: str, topic: str) -> dict[int, LogRange]:
    """Look up where each partition begins and ends, in offsets and in log time.

    Parameters
    ----------
    bootstrap : str
        Address of the broker.
    topic : str
        Name of an existing topic.

    Returns
    -------
    dict of int to LogRange
        One entry per partition.
    """
    with _consumer(bootstrap, topic) as (consumer, partitions):
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


def committed_offsets(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """Look up how far a consumer group has come.

    Parameters
    ----------
    bootstrap : str
        Address of the broker.
    group : str
        Name of the group; one that the broker does not know has come nowhere.

    Returns
    -------
    dict of (str, int) to int
        For each topic and partition, the offset after the last record that the group is done with.
    """
    with _admin(bootstrap) as admin:
        found = admin.list_group_offsets(group).get(group, {})
        return {(partition.topic, partition.partition): at.offset for partition, at in found.items()}


def read_committed(bootstrap: str, topic: str) -> Iterator[tuple[int, int, int, bytes | None, bytes | None]]:
    """Read all committed records that a topic holds now, then end.

    Parameters
    ----------
    bootstrap : str
        Address of the broker.
    topic : str
        Name of an existing topic.

    Yields
    ------
    tuple of (int, int, int, bytes or None, bytes or None)
        Partition, offset, timestamp in milliseconds, key, value; in the order of offsets within a partition. Records of aborted
        transactions, and those behind the first open one, are not among them.
    """
    with _consumer(bootstrap, topic) as (consumer, partitions):
        begins, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        for record in _drain(consumer, {partition: (begins[partition], ends[partition]) for partition in partitions}):
            yield record.partition, record.offset, record.timestamp, record.key, record.value


def send_all(bootstrap: str, records: Iterable[Record], progress: Callable[[int], None] | None = None) -> SendReport:
    """Send records and learn what became of each one.

    Parameters
    ----------
    bootstrap : str
        Address of the broker.
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
    with _plain_errors(bootstrap), ExitStack() as open_producers:
        by_limit: dict[int, Any] = {}
        for topic, partition, key, value, timestamp_ms in records:
            producer = by_topic.get(topic)
            if producer is None:
                limit = _max_message_bytes(bootstrap, topic)
                producer = by_limit.get(limit) or open_producers.enter_context(_producer(bootstrap, limit))
                by_topic[topic] = by_limit[limit] = producer
            try:
                tally.add(producer.send(topic, value=value, key=key, partition=partition, timestamp_ms=timestamp_ms))
            except (kafka_errors.MessageSizeTooLargeError, ValueError, AssertionError) as error:
                tally.refuse(error)
        # No flush(): in kafka-python 3.0 it can raise without cause. Waiting for each record does the same.
        return tally.report()


def heartbeat(bootstrap: str, topic: str, timestamp_ms: int | None = None) -> int:
    """Write one heartbeat into every partition of a topic.

    Parameters
    ----------
    bootstrap : str
        Address of the broker.
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
    with _consumer(bootstrap, topic) as (_, partitions):
        numbers = [partition.partition for partition in partitions]
    report = send_all(bootstrap, [(topic, number, None, HEARTBEAT, timestamp_ms) for number in numbers])
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
            if _is_outage(error):
                raise
            self.refuse(error)
        else:
            self._sent += 1
            self._tell(every=PROGRESS_EVERY)

    def _tell(self, every: int) -> None:
        settled = self._sent + self._failed.total()
        if self._progress is not None and settled % every == 0:
            self._progress(settled)


def _full_config(spec: TopicSpec) -> dict[str, str]:
    return {"message.timestamp.type": "LogAppendTime", **spec.config}


def _config_value(admin: Any, topic: str, name: str) -> str:
    answer = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
    return str(answer["topic"][topic][name]["value"])


def _max_message_bytes(bootstrap: str, topic: str) -> int:
    require_topics(bootstrap, topic)
    with _admin(bootstrap) as admin:
        return int(_config_value(admin, topic, "max.message.bytes"))


def _check_existing(admin: Any, name: str, spec: TopicSpec) -> None:
    partitions = len(admin.describe_topics([name])[0]["partitions"])
    if partitions != spec.partitions:
        raise UserError(f"Topic {name} exists with {partitions} partitions, not {spec.partitions}: delete it, or ask for {partitions}.")
    kind = _config_value(admin, name, "message.timestamp.type")
    wanted = _full_config(spec)["message.timestamp.type"]
    if kind != wanted:
        raise UserError(f"Topic {name} exists with {kind} timestamps, not {wanted}: delete it, or use another broker folder.")


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


@contextmanager
def _admin(bootstrap: str) -> Iterator[Any]:
    with _plain_errors(bootstrap):
        admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap, bootstrap_timeout_ms=TIMEOUT_MS, request_timeout_ms=TIMEOUT_MS)
        try:
            yield admin
        finally:
            admin.close()


@contextmanager
def _consumer(bootstrap: str, topic: str) -> Iterator[tuple[Any, list[Any]]]:
    require_topics(bootstrap, topic)
    with _plain_errors(bootstrap):
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            bootstrap_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=TIMEOUT_MS,
            max_poll_records=5_000,
        )
        try:
            yield consumer, [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        finally:
            consumer.close(autocommit=False)


@contextmanager
def _producer(bootstrap: str, max_message_bytes: int) -> Iterator[Any]:
    """Open a producer whose batches fit the topic: a batch that the broker finds too large would lose its small records as well."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
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


def _is_outage(error: BaseException) -> bool:
    return isinstance(
        error,
        kafka_errors.KafkaConnectionError | kafka_errors.KafkaTimeoutError | kafka_errors.NodeNotReadyError | kafka_errors.Cancelled,
    )


@contextmanager
def _plain_errors(bootstrap: str) -> Iterator[None]:
    """Turn the client's errors into one sentence; their texts are left out, since they can quote records."""
    require_broker(bootstrap)
    try:
        yield
    except kafka_errors.KafkaError as error:
        if _is_outage(error):
            raise UserError(f"The Kafka broker at {bootstrap} does not answer: see `wayveil broker status`, then run again.") from error
        raise UserError(f"The Kafka broker at {bootstrap} refused a request ({type(error).__name__}): check its settings.") from error
