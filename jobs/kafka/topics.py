"""Topics: what the product needs, which exist, and their creation."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import kafka
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType

from jobs.errors import UserError
from jobs.kafka.connect import admin_client
from jobs.kafka.security import client_options
from streaming.settings import KafkaSettings, Settings

__all__ = [
    "EVENT_TIME",
    "TopicSpec",
    "config_value",
    "create_topics",
    "delete_topics",
    "identify_topics",
    "is_ready",
    "product_topics",
    "topic_names",
]

GONE_S = 30.0
FOR_EVER = {"retention.ms": "-1"}
EVENT_TIME = {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": str(2**63 - 1), **FOR_EVER}
"""A replay writes event times, which may lie years back: retention by time would delete them at once."""


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
        Inputs, products, and the operator's topics. `runs` and `density` are ordered as a whole, so they have one partition.
    """
    names = settings.topics
    return {
        **{source.topic: TopicSpec(partitions, EVENT_TIME if replay else {}) for source in settings.source},
        names.runs: TopicSpec(1, FOR_EVER),
        **({names.policies: TopicSpec(1, {**FOR_EVER, **(EVENT_TIME if replay else {})})} if settings.live_policies else {}),
        **{topic: TopicSpec(partitions, FOR_EVER) for topic in settings.trace_topics},
        **({names.density: TopicSpec(1, FOR_EVER)} if settings.density else {}),
        **{name: TopicSpec(partitions, FOR_EVER) for name in (names.releases, names.charges)},
        **{name: TopicSpec(partitions) for name in (names.rejected, names.late, names.balance)},
    }


def is_ready(broker: KafkaSettings) -> bool:
    """Tell whether a broker answers a request for its topics.

    Parameters
    ----------
    broker : KafkaSettings
        Where the broker is, and how it is reached.
    """
    try:
        admin = kafka.KafkaAdminClient(**client_options(broker), bootstrap_timeout_ms=2_000, request_timeout_ms=2_000)
    except (kafka_errors.KafkaError, OSError):
        return False
    try:
        return bool(admin.describe_cluster()["brokers"])
    except (kafka_errors.KafkaError, OSError):
        return False
    finally:
        admin.close()


def topic_names(broker: KafkaSettings) -> set[str]:
    """Give the names of all topics.

    Parameters
    ----------
    broker : KafkaSettings
        Where the broker is, and how it is reached.
    """
    with admin_client(broker) as admin:
        return set(admin.list_topics())


def identify_topics(broker: KafkaSettings, *topics: str) -> dict[str, str]:
    """Give the identifier that the broker made for each topic when it was created.

    Parameters
    ----------
    broker : KafkaSettings
        Where the broker is, and how it is reached.
    *topics : str
        Names of existing topics.
    """
    with admin_client(broker) as admin:
        return {found["name"]: str(found["topic_id"]) for found in admin.describe_topics(list(topics))}


def create_topics(broker: KafkaSettings, topics: Mapping[str, TopicSpec]) -> list[str]:
    """Create the topics that do not exist yet.

    Parameters
    ----------
    broker : KafkaSettings
        Where the broker is, and how it is reached.
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
    with admin_client(broker) as admin:
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


def delete_topics(broker: KafkaSettings, topics: Collection[str]) -> None:
    """Delete those of some topics that exist, and wait until they are gone."""
    with admin_client(broker) as admin:
        present = [name for name in topics if name in set(admin.list_topics())]
        if present:
            admin.delete_topics(present)
        deadline = time.monotonic() + GONE_S
        while set(present) & set(admin.list_topics()):
            if time.monotonic() > deadline:
                raise UserError(f"The broker did not delete {', '.join(present)} in time: see its log, and run again.")
            time.sleep(0.1)


def config_value(admin: Any, topic: str, name: str) -> str:
    """Look up one setting of a topic."""
    answer = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
    return str(answer["topic"][topic][name]["value"])


def _full_config(spec: TopicSpec) -> dict[str, str]:
    return {"message.timestamp.type": "LogAppendTime", **spec.config}


def _check_existing(admin: Any, name: str, spec: TopicSpec) -> None:
    partitions = len(admin.describe_topics([name])[0]["partitions"])
    if partitions != spec.partitions:
        raise UserError(f"Topic {name} exists with {partitions} partitions, not {spec.partitions}: delete it, or ask for {partitions}.")
    kind = config_value(admin, name, "message.timestamp.type")
    wanted = _full_config(spec)["message.timestamp.type"]
    if kind != wanted:
        raise UserError(f"Topic {name} exists with {kind} timestamps, not {wanted}: delete it, or use another broker folder.")
