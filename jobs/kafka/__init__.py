"""What the programs themselves ask of Kafka, around the jobs: topics, reading a topic once, sending, heartbeats."""

from jobs.kafka.reading import LogRange, documents, log_ranges, read_committed
from jobs.kafka.sending import HEARTBEAT, Record, SendReport, heartbeat, send_all
from jobs.kafka.topics import EVENT_TIME, TopicSpec, create_topics, identify_topics, is_ready, product_topics, topic_names
from jobs.kafka.transactions import abort_transactions, require_settled

__all__ = [
    "EVENT_TIME",
    "HEARTBEAT",
    "LogRange",
    "Record",
    "SendReport",
    "TopicSpec",
    "abort_transactions",
    "create_topics",
    "documents",
    "heartbeat",
    "identify_topics",
    "is_ready",
    "log_ranges",
    "product_topics",
    "read_committed",
    "require_settled",
    "send_all",
    "topic_names",
]
