"""A policy or a user's edit that comes while the job runs takes effect at a tick's start, in a replay of the log at the same one."""

import secrets
import signal
import subprocess
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from jobs.kafka import Record, create_topics, documents, heartbeat, product_topics, send_all
from jobs.policy.publish import put_edit, put_policy
from jobs.protect import read_settings
from streaming.settings import KafkaSettings
from tests.integration.program import command, feed, rows, run_job, write_settings

pytestmark = pytest.mark.integration

START = 1_700_000_040_000
USERS = 30
POLICY = """
version = {version}
user_edits = true
[[rule]]
subject = "default"
audience = "*"
level = "perturbed"
radius_m = {radius_m}
"""
EDIT = """
version = 1
[[rule]]
audience = "*"
level = "perturbed"
radius_m = 3200
"""
TOO_MANY = {"wayveil": "policy-edit", "user": "u3", "version": 2, "rule": []}
TOO_LATE = {"wayveil": "policy", "from_tick": START // 60_000, "policy": {"version": 5}}
JOB = "checkpoint_interval_s = 1\n"
EPOCHS = "epoch_ticks = 4\n"
"""They begin with minutes 2, 6 and 10."""


def send(broker: KafkaSettings, minutes: range) -> None:
    records: list[Record] = []
    for second in range(minutes.start * 60, minutes.stop * 60, 20):
        for user in range(USERS):
            t = START + second * 1000
            records.append(("live-fixes", user % 2, b"k", orjson.dumps({"user": f"u{user}", "t": t, "lat": 60.17, "lon": 24.9}), t))
    end = START + minutes.stop * 60_000 + 40_000
    feed(broker, "live-fixes", records, end)
    heartbeat(broker, "live-policies", end)


def iso(minute: float) -> str:
    return datetime.fromtimestamp((START + minute * 60_000) / 1000, UTC).isoformat()


def wait_for_rows(broker: KafkaSettings, count: int, job: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 120
    while len(rows(broker, "live-traces")) < count:
        assert job.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_a_live_change(broker: KafkaSettings, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(secrets.token_hex(32))
    for version, radius_m in ((1, 400), (2, 800), (4, 1600)):
        (tmp_path / f"{version}.toml").write_text(POLICY.format(version=version, radius_m=radius_m))
    (tmp_path / "edit.toml").write_text(EDIT)
    head = f'policy = "{tmp_path}/1.toml"\nlive_policies = true\n'
    path = write_settings(tmp_path, broker, "live", head=head, privacy=EPOCHS, job=JOB)
    settings = read_settings(path)
    create_topics(broker, product_topics(settings, 2, replay=True))
    job = subprocess.Popen([part for part in command(path) if part != "--bounded"], text=True)
    try:
        send(broker, range(2))
        wait_for_rows(broker, 2 * USERS, job)
        assert "holds from tick" in put_policy(settings, tmp_path / "2.toml", iso(5), iso(3))
        send_all(broker, [("live-policies", 0, None, b'{"wayveil":"policy"}', START + 190_000)])
        assert f"holds from tick {START // 60_000 + 6}" in put_edit(settings, "u3", tmp_path / "edit.toml", iso(3.2))
        send_all(broker, [("live-policies", 0, b"user:u3/2", orjson.dumps(TOO_MANY), START + 200_000)])
        send(broker, range(2, 5))
        put_policy(settings, tmp_path / "4.toml", iso(7.5), iso(6))
        send_all(broker, [("live-policies", 0, b"5", orjson.dumps(TOO_LATE), START + 361_000)])
        send(broker, range(5, 10))
        wait_for_rows(broker, 10 * USERS, job)
    finally:
        job.send_signal(signal.SIGTERM)
        job.wait(60)

    start = START // 60_000
    wanted = {}
    for minute in range(10):
        policy, radius_m = (4, 1600) if minute >= 8 else (2, 800) if minute >= 5 else (1, 400)
        edited = 1 if minute >= 6 else 0
        wanted |= {(start + minute, policy, radius_m): USERS - edited, (start + minute, policy, 3200): edited}
    found = Counter((row["tick"], row["policy"], row["radius_m"]) for row in documents(broker, "live-traces"))
    assert found == Counter(wanted)
    reasons = [row["reason"] for row in documents(broker, "live-rejected")]
    assert sorted(reasons) == ["policy_malformed", "policy_rate", "policy_too_late"]
    assert not any(b"u3" in row for row in rows(broker, "live-rejected"))

    again = write_settings(tmp_path, broker, "again", source="live-fixes", head=head, privacy=EPOCHS, job=JOB)
    again.write_text(again.read_text().replace('"again-policies"', '"live-policies"'))
    create_topics(
        broker, {name: spec for name, spec in product_topics(read_settings(again), 2, replay=True).items() if not name.startswith("live-")}
    )
    done = run_job(again)
    assert done.returncode == 0, done.stderr[-3000:]
    assert rows(broker, "again-traces") == rows(broker, "live-traces")
    assert rows(broker, "again-rejected") == rows(broker, "live-rejected")
