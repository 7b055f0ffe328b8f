"""Sending many records in a fixed order, as fast as the broker takes them: with librdkafka, since a client in Python takes far longer."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jobs.errors import UserError
from jobs.kafka.security import librdkafka_options
from jobs.preflight import require_broker
from streaming.settings import KafkaSettings

__all__ = ["FAST_PRODUCER", "Bulk", "bulk_sender"]

FAST_PRODUCER = {"linger.ms": 50, "batch.size": 400_000, "queue.buffering.max.messages": 1_000_000, "log_level": 3}
"""Settings under which a producer of confluent-kafka is about as fast as it gets."""

POLL_EVERY = 10_000
WAIT_S = 0.1


class Bulk:
    """Sends records; those of one partition arrive in the order of sending, each once, or all later ones fail as well.

    Parameters
    ----------
    producer
        An idempotent producer of confluent-kafka.
    """

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._failed: Counter[str] = Counter()
        self.sent = 0

    def send(self, topic: str, partition: int, value: bytes, timestamp_ms: int) -> None:
        """Hand over a record; waits while the queue is full.

        Raises
        ------
        UserError
            If an earlier record could not be sent.
        """
        if self.sent % POLL_EVERY == 0:
            self._producer.poll(0)
            self._check()
        while True:
            try:
                self._producer.produce(topic, value, partition=partition, timestamp=timestamp_ms, on_delivery=self._settle)
                break
            except BufferError:
                self._producer.poll(WAIT_S)
                self._check()
        self.sent += 1

    def flush(self) -> None:
        """Wait until the broker has all that was sent.

        Raises
        ------
        UserError
            If it does not take some of it.
        """
        self._producer.flush()
        self._check()

    def _settle(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed[error.name()] += 1

    def _check(self) -> None:
        if self._failed:
            self._producer.purge()
            raise UserError(
                f"The broker did not take all records ({', '.join(sorted(self._failed))}): see its log, and run the command again."
            )


@contextmanager
def bulk_sender(broker: KafkaSettings) -> Iterator[Bulk]:
    """Open a sender; at the end all that was sent has arrived.

    Raises
    ------
    UserError
        If the broker does not answer, the package is missing, or records were not taken.
    """
    try:
        from confluent_kafka import Producer
    except ImportError as error:
        raise UserError("Sending many records needs the package confluent-kafka: install wayveil with the extra `replay`.") from error
    require_broker(broker)
    # Without idempotence a batch that is sent again can overtake: the log's clock would step back.
    bulk = Bulk(Producer({**librdkafka_options(broker), **FAST_PRODUCER, "enable.idempotence": True, "delivery.report.only.error": True}))
    yield bulk
    bulk.flush()
