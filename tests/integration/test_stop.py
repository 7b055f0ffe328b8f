"""A job that was stopped or killed leaves nothing that stands in the way of readers, or of another run."""

import os
import secrets
import signal
import subprocess
import time
from pathlib import Path

import orjson
import pytest

from jobs.kafka import Record, create_topics, product_topics, read_committed, require_settled
from jobs.kafka.connect import admin_client, partition_consumer
from jobs.protect import read_settings
from streaming.settings import KafkaSettings
from tests.integration.program import command, feed, rows, run_job, write_settings

pytestmark = pytest.mark.integration

START = 1_700_000_040_000
USERS, MINUTES = 40, 20
SLOW = "batch = 30\ncheckpoint_interval_s = 0.5\n"


def send(broker: KafkaSettings, topic: str) -> int:
    records: list[Record] = []
    for second in range(0, MINUTES * 60, 2):
        for user in range(USERS):
            t = START + second * 1000
            value = orjson.dumps({"user": f"user-{user}", "t": t, "lat": 60.17, "lon": 24.9})
            records.append((topic, user % 2, b"k", value, t))
    return feed(broker, topic, records, START + MINUTES * 60_000 + 40_000)


def end_in_mid_run(settings: Path, broker: KafkaSettings, topic: str, number: int, *options: str) -> str:
    """Start the job, send a signal once it has committed a row more and holds others back, and return what it said."""
    before = sum(1 for _ in read_committed(broker, topic))
    process = subprocess.Popen(command(settings, *options), start_new_session=True, stderr=subprocess.PIPE, text=True)
    try:
        while sum(1 for _ in read_committed(broker, topic)) <= before or not open_transactions(broker, topic):
            assert process.poll() is None, "the job ended before it could be stopped"
    finally:
        os.killpg(process.pid, number) if number == signal.SIGKILL else process.send_signal(number)
        said = process.communicate(timeout=60)[1]
    return said


def open_transactions(broker: KafkaSettings, topic: str) -> bool:
    ends = []
    for committed_only in (True, False):
        with partition_consumer(broker, topic, committed_only=committed_only) as (consumer, partitions):
            ends.append(sum(consumer.end_offsets(partitions).values()))
    return ends[1] > ends[0]


def listed_transactions(broker: KafkaSettings) -> list[str]:
    with admin_client(broker) as admin:
        return [one.transactional_id for found in admin.list_transactions(state_filters=["Ongoing"]).values() for one in found]


def test_stopped_then_killed_then_superseded(broker: KafkaSettings, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(secrets.token_hex(32))
    first = write_settings(tmp_path, broker, "stopped", job=SLOW)
    second = write_settings(tmp_path, broker, "stopped", ratio=3.0)
    create_topics(broker, product_topics(read_settings(first), 2, replay=True))
    send(broker, "stopped-fixes")

    assert "stopped: go on with --resume" in end_in_mid_run(first, broker, "stopped-traces", signal.SIGTERM)
    time.sleep(1)
    assert not listed_transactions(broker)
    assert not open_transactions(broker, "stopped-traces")
    assert "This very run was stopped" in run_job(first).stderr

    end_in_mid_run(first, broker, "stopped-traces", signal.SIGKILL, "--resume")
    committed = rows(broker, "stopped-traces")
    assert listed_transactions(broker)
    again = run_job(second, "--spend-again")
    assert again.returncode == 0, again.stderr[-2000:]
    assert not listed_transactions(broker)
    require_settled(broker, "stopped-traces")
    found = rows(broker, "stopped-traces")
    # What the first run had committed behind its own open transaction can be read only now, so it may be more than `committed`.
    charge = orjson.loads(committed[0].split(b" ", 1)[1])["epsilon_micro"]
    assert sum(b'"epsilon_micro":%d,' % charge not in row for row in found) == USERS * MINUTES
    assert set(committed) < set(found)
    assert "had other settings" in run_job(first, "--resume").stderr
