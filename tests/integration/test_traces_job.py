"""The whole way, Kafka -> Flink -> Kafka, with the program that users start."""

import secrets
from collections import Counter
from pathlib import Path

import orjson
import pytest

from jobs.kafka import Record, create_topics, product_topics
from jobs.protect import read_settings
from streaming.settings import KafkaSettings
from tests.integration.program import feed, rows, run_job, write_settings

pytestmark = pytest.mark.integration

START = 1_700_000_040_000
USERS, MINUTES = 9, 5


def send(broker: KafkaSettings, topic: str) -> int:
    records: list[Record] = []
    for second in range(0, MINUTES * 60, 5):
        for user in range(USERS):
            t = START + second * 1000
            value = orjson.dumps({"user": f"user-{user}", "t": t, "lat": 60.17 + user / 100, "lon": 24.9 + second / 10_000})
            records.append((topic, user % 2, b"k", value, t))
        if second % 50 == 0:
            records.append((topic, 0, b"k", b'{"lat":61,"broken', START + second * 1000))
    records.append((topic, 1, b"k", records[0][3], START + 200_000))
    return feed(broker, topic, records, START + MINUTES * 60_000 + 40_000)


def test_runs_repeat_and_second_looks_are_refused_then_charged(broker: KafkaSettings, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(secrets.token_hex(32))
    settings = write_settings(tmp_path, broker, "whole")
    create_topics(broker, product_topics(read_settings(settings), 2, replay=True))
    sent = send(broker, "whole-fixes")

    first = run_job(settings)
    assert first.returncode == 0, first.stderr[-2000:]
    traces = rows(broker, "whole-traces")
    status = Counter(orjson.loads(row.split(b" ", 1)[1])["status"] for row in traces)
    assert status == {"released": USERS * MINUTES}
    balance = [orjson.loads(row.split(b" ", 1)[1]) for row in rows(broker, "whole-balance")]
    totals = {part: sum(row[part] for row in balance) for part in ("records", "used", "merged", "late", "rejected", "control", "unclosed")}
    assert totals == {
        "records": sent,
        "used": USERS * MINUTES * 12,
        "merged": 0,
        "late": 1,
        "rejected": 6,
        "control": 2,
        "unclosed": 0,
    }
    assert len(rows(broker, "whole-rejected")) == 6
    assert not any(b"user-" in row for topic in ("traces", "late", "rejected", "balance") for row in rows(broker, f"whole-{topic}"))

    ended = run_job(settings, "--resume")
    assert ended.returncode == 2
    assert "left no checkpoint" in ended.stderr

    again = run_job(write_settings(tmp_path, broker, "whole", parallelism=1))
    assert again.returncode == 0, again.stderr[-2000:]
    assert rows(broker, "whole-traces") == sorted(traces * 2)

    other = write_settings(tmp_path, broker, "whole", ratio=3.0)
    refused = run_job(other)
    assert refused.returncode == 2
    assert "--spend-again" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert run_job(other, "--spend-again").returncode == 0
    assert len(rows(broker, "whole-traces")) == 3 * len(traces)


def test_a_missing_topic_is_one_sentence(broker: KafkaSettings, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(secrets.token_hex(32))
    done = run_job(write_settings(tmp_path, broker, "nowhere"))
    assert done.returncode == 2
    assert done.stderr.startswith("wayveil: Topics nowhere-fixes, ")
    assert len(done.stderr.splitlines()) == 1
