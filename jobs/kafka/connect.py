"""Open clients of the broker, and turn their errors into one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kafka
from kafka import TopicPartition
from kafka import errors as kafka_errors

from jobs.errors import UserError
from jobs.preflight import require_broker, require_topics

__all__ = ["TIMEOUT_MS", "admin_client", "is_outage", "partition_consumer", "plain_errors"]

TIMEOUT_MS = 15_000


@contextmanager
def admin_client(bootstrap: str) -> Iterator[Any]:
    """Open an admin client of the broker at `bootstrap`."""
    with plain_errors(bootstrap):
        admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap, bootstrap_timeout_ms=TIMEOUT_MS, request_timeout_ms=TIMEOUT_MS)
        try:
            yield admin
        finally:
            admin.close()


@contextmanager
def partition_consumer(bootstrap: str, topic: str, *, committed_only: bool = True) -> Iterator[tuple[Any, list[Any]]]:
    """Open a consumer, by default of committed records; yield it with all partitions of the topic in order, none of them assigned."""
    require_topics(bootstrap, topic)
    with plain_errors(bootstrap):
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if committed_only else "read_uncommitted",
            bootstrap_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=TIMEOUT_MS,
            max_poll_records=5_000,
        )
        try:
            yield consumer, [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        finally:
            consumer.close(autocommit=False)


def is_outage(error: BaseException) -> bool:
    """Tell whether an error says that the broker is away, and not that it refused something."""
    return isinstance(
        error,
        kafka_errors.KafkaConnectionError | kafka_errors.KafkaTimeoutError | kafka_errors.NodeNotReadyError | kafka_errors.Cancelled,
    )


@contextmanager
def plain_errors(bootstrap: str) -> Iterator[None]:
    """Turn the client's errors into one sentence; their texts are left out, since they can quote records."""
    require_broker(bootstrap)
    try:
        yield
    except kafka_errors.KafkaError as error:
        if is_outage(error):
            raise UserError(f"The Kafka broker at {bootstrap} does not answer: see `wayveil broker status`, then run again.") from error
        raise UserError(f"The Kafka broker at {bootstrap} refused a request ({type(error).__name__}): check its settings.") from error
