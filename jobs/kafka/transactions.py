"""Transactions of stopped jobs: what they hold back from readers, and their end."""

import time
from collections.abc import Collection
from typing import Any

import kafka

from jobs.errors import UserError
from jobs.kafka.connect import TIMEOUT_MS, admin_client, partition_consumer, plain_errors
from jobs.kafka.security import client_options
from streaming.settings import KafkaSettings

__all__ = ["abort_transactions", "require_settled"]

OPEN = ("Ongoing", "PrepareAbort", "PrepareCommit")
SETTLE_S = 10.0


def abort_transactions(broker: KafkaSettings, prefixes: Collection[str]) -> int:
    """Abort the open transactions of jobs that nobody will resume, and shut out such a job if it should still run.

    Its rows in these transactions were never readable. Flink names its transactions by a prefix, a dash, and numbers.

    Parameters
    ----------
    broker : KafkaSettings
        Where the broker is, and how it is reached.
    prefixes : collection of str
        Prefixes of the jobs' transactions.

    Returns
    -------
    int
        How many were open.
    """
    if not prefixes:
        return 0
    with admin_client(broker) as admin:
        listed = admin.list_transactions(state_filters=OPEN)
    beginnings = tuple(f"{prefix}-" for prefix in prefixes)
    names = {found.transactional_id for listings in listed.values() for found in listings if found.transactional_id.startswith(beginnings)}
    with plain_errors(broker):
        for name in sorted(names):
            # To begin anew under a transaction's name ends the one that is open, and fences its producer off.
            producer = kafka.KafkaProducer(**client_options(broker), transactional_id=name, max_block_ms=TIMEOUT_MS)
            try:
                producer.init_transactions()
            finally:
                producer.close()
    return len(names)


def require_settled(broker: KafkaSettings, topic: str) -> None:
    """Refuse to go on while a transaction of a stopped job is open in a topic: what it holds back could not be read.

    Raises
    ------
    UserError
        If records lie behind an open transaction.
    """
    deadline = time.monotonic() + SETTLE_S
    while _last_offsets(broker, topic, committed_only=False) != _last_offsets(broker, topic, committed_only=True):
        if time.monotonic() > deadline:
            raise UserError(
                f"A job has left an open transaction in topic {topic}, which hides rows: go on with that job's --resume, or wait until "
                "kafka.transaction_timeout_s has passed."
            )
        time.sleep(0.2)


def _last_offsets(broker: KafkaSettings, topic: str, *, committed_only: bool) -> dict[Any, int]:
    with partition_consumer(broker, topic, committed_only=committed_only) as (consumer, partitions):
        return dict(consumer.end_offsets(partitions))
