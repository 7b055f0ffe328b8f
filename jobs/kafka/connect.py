"""Open clients of the broker, and turn their errors into one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import kafka
from kafka import TopicPartition
from kafka import errors as kafka_errors

from jobs.errors import UserError
from jobs.kafka.security import client_options
from jobs.preflight import require_broker, require_topics
from streaming.settings import KafkaSettings

__all__ = ["TIMEOUT_MS", "admin_client", "is_outage", "partition_consumer", "plain_errors"]

TIMEOUT_MS = 15_000


@contextmanager
def admin_client(broker: KafkaSettings) -> Iterator[Any]:
    """Open an admin client."""
    with plain_errors(broker):
        admin = kafka.KafkaAdminClient(**client_options(broker), bootstrap_timeout_ms=TIMEOUT_MS, request_timeout_ms=TIMEOUT_MS)
        try:
            yield admin
        finally:
            admin.close()


@contextmanager
def partition_consumer(broker: KafkaSettings, topic: str, *, committed_only: bool = True) -> Iterator[tuple[Any, list[Any]]]:
    """Open a consumer, by default of committed records; yield it with all partitions of the topic in order, none of them assigned."""
    require_topics(broker, topic)
    with plain_errors(broker):
        consumer = kafka.KafkaConsumer(
            **client_options(broker),
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
def plain_errors(broker: KafkaSettings) -> Iterator[None]:
    """Turn the client's errors into one sentence; their texts are left out, since they can quote records."""
    require_broker(broker)
    try:
        yield
    except kafka_errors.KafkaError as error:
        where, kind = f"The Kafka broker at {broker.bootstrap}", type(error).__name__
        if is_outage(error):
            tls = ", or see whether it wants TLS (kafka.security)" if broker.security.protocol == "PLAINTEXT" else ""
            raise UserError(f"{where} does not answer: see `wayveil broker status`, then run again{tls}.") from error
        if isinstance(error, kafka_errors.AuthorizationError):
            name = broker.security.username or "this client"
            raise UserError(f"{where} does not allow {name} to do this ({kind}): see deploy/kafka/acls.txt.") from error
        raise UserError(f"{where} refused a request ({kind}): check its settings.") from error
