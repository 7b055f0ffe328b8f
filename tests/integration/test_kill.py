"""The job dies without warning and goes on from its checkpoint: readers of committed rows cannot tell."""

import os
import secrets
import signal
import subprocess
import time
from pathlib import Path

import orjson
import pytest

from jobs.kafka import Record, create_topics, product_topics, read_committed
from jobs.kafka.connect import admin_client
from jobs.protect import read_settings
from jobs.runs import known_runs
from streaming.settings import KafkaSettings
from tests.integration.program import command, feed, rows, run_job, write_settings

pytestmark = pytest.mark.integration

START = 1_700_000_040_000
USERS, MINUTES = 40, 20
SLOW = "batch = 30\ncheckpoint_interval_s = 0.5\n"
OUTPUTS = ("traces", "releases", "charges", "density", "balance", "rejected", "late")
DENSITY = 'epsilon = 6.0\nwindow_ticks = 6\nschedule = "budget-absorption"\n'


def send(broker: KafkaSettings, topic: str) -> int:
    records: list[Record] = []
    for second in range(0, MINUTES * 60, 2):
        for user in range(USERS):
            t = START + second * 1000
            value = orjson.dumps({"user": f"user-{user}", "t": t, "lat": 60.17 + user / 1000, "lon": 24.9 + second / 100_000})
            records.append((topic, user % 2, b"k", value, t))
        if second % 100 == 0:
            records.append((topic, 0, b"k", b"[1]", START + second * 1000))
            records.append((topic, 1, b"k", records[0][3], START + second * 1000))
    return feed(broker, topic, records, START + MINUTES * 60_000 + 40_000)


def kill_in_mid_run(settings: Path, broker: KafkaSettings, topic: str, enough: int) -> int:
    """Start the job, kill it and all its children once it has committed enough rows, and return how many."""
    process = subprocess.Popen(
        command(settings, product="all"), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while sum(1 for _ in read_committed(broker, topic)) < enough:
            assert process.poll() is None, "the job ended before it could be killed"
            time.sleep(0.1)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return len(rows(broker, topic))


def forget_offsets(broker: KafkaSettings, settings: Path) -> None:
    """Take from Kafka how far the run had come: a job that dies may not have said so."""
    with admin_client(broker) as admin:
        admin.delete_groups([known_runs(read_settings(settings))[-1].group])


def test_killed_and_resumed_gives_the_rows_of_an_undisturbed_run(broker: KafkaSettings, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(secrets.token_hex(32))
    calm = write_settings(tmp_path, broker, "calm", source="kill-fixes", density=DENSITY)
    killed = {
        enough: write_settings(tmp_path, broker, f"killed-{enough}", source="kill-fixes", job=SLOW, density=DENSITY) for enough in (1, 500)
    }
    for settings in (calm, *killed.values()):
        create_topics(broker, product_topics(read_settings(settings), 2, replay=True))
    sent = send(broker, "kill-fixes")
    assert run_job(calm, product="all").returncode == 0
    expected = rows(broker, "calm-traces")
    assert len(expected) == USERS * MINUTES
    balance = [orjson.loads(row.split(b" ", 1)[1]) for row in rows(broker, "calm-balance")]
    for product in ("traces", "density"):
        assert sum(row["records"] for row in balance if row["product"] == product) == sent

    for enough, settings in killed.items():
        committed = kill_in_mid_run(settings, broker, f"killed-{enough}-traces", enough)
        assert enough <= committed < len(expected)
        forget_offsets(broker, settings)
        resumed = run_job(settings, "--resume", product="all")
        assert resumed.returncode == 0, resumed.stderr[-2000:]
        assert "left no checkpoint" in run_job(settings, "--resume", product="all").stderr
        for output in OUTPUTS:
            assert rows(broker, f"killed-{enough}-{output}") == rows(broker, f"calm-{output}"), output
