"""Density the whole way, alone and together with traces, and when a start of it is refused."""

import secrets
from pathlib import Path

import orjson
import pytest
import shapely

from jobs.kafka import Record, create_topics, documents, product_topics, read_committed
from jobs.protect import read_settings
from streaming.density import Density
from streaming.settings import KafkaSettings
from streaming.tiling_file import load_tiling
from tests.integration.program import feed, rows, run_job, write_settings

pytestmark = pytest.mark.integration

START = 1_700_000_040_000
USERS, MINUTES = 120, 4
SECTION = "epsilon = 40.0\nwindow_ticks = 4\n"


def send(broker: KafkaSettings, topic: str) -> int:
    records: list[Record] = []
    for second in range(0, MINUTES * 60, 15):
        for user in range(USERS):
            t = START + second * 1000
            value = orjson.dumps({"user": f"u{user}", "t": t, "lat": 60.1 + user / 1000, "lon": 24.9 + second / 10_000})
            records.append((topic, user % 2, b"k", value, t))
    # nobody in the fourth minute but one with an unusable position
    records = [record for record in records if record[4] is not None and record[4] < START + 180_000]
    records.append((topic, 0, b"k", orjson.dumps({"user": "u1", "t": START + 181_000, "lat": 99, "lon": 0}), START + 181_000))
    return feed(broker, topic, records, START + MINUTES * 60_000 + 40_000)


def test_density_alone_and_with_traces(broker: KafkaSettings, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(secrets.token_hex(32))
    both = write_settings(tmp_path, broker, "both", source="density-fixes", density=SECTION)
    alone = write_settings(tmp_path, broker, "alone", source="density-fixes", density=SECTION)
    for settings in (both, alone):
        create_topics(broker, product_topics(read_settings(settings), 2, replay=True))
    sent = send(broker, "density-fixes")
    for settings, product in ((both, "all"), (alone, "density")):
        done = run_job(settings, product=product)
        assert done.returncode == 0, done.stderr[-2000:]

    assert rows(broker, "alone-density") == rows(broker, "both-density")
    assert rows(broker, "alone-traces") == []
    assert len(rows(broker, "both-traces")) == USERS * MINUTES
    for name, product in (("both", "traces"), ("both", "density"), ("alone", "density")):
        balance = [row for row in documents(broker, f"{name}-balance") if row["product"] == product]
        parts = ("used", "merged", "duplicate", "late", "rejected", "withheld", "control")
        assert sum(row["records"] for row in balance) == sent == sum(row[part] for row in balance for part in parts)

    tiling, _ = load_tiling(tmp_path / "tiling.parquet")
    found = [Density.load(value, tiling) for *_, value in read_committed(broker, "alone-density") if value]
    ticks = [density.tick for density in found]
    assert ticks == list(range(ticks[0], ticks[-1] + 1))
    assert [density.count[0] for density in found if density.start_ms >= START] == [USERS] * 3 + [1]
    for density in found:
        assert (tiling.tree.sums(density.count[tiling.tree.leaves]) == density.count).all()
        assert (density.count >= 0).all()
    crowd = next(density for density in found if density.start_ms == START)
    south = crowd.range_count(shapely.box(24.5, 60.0, 25.4, 60.16))
    assert abs(south.count - 60) < 6  # its edge cuts tiles
    assert south.low <= south.count <= south.high
    assert 30 <= south.count <= 90

    finer = write_settings(tmp_path, broker, "alone", source="density-fixes", density="epsilon = 80.0\nwindow_ticks = 4\n")
    assert "promised a lower limit" in run_job(finer, "--spend-again", product="density").stderr
    smooth = write_settings(tmp_path, broker, "alone", source="density-fixes", density=SECTION + "smoothing = true\n")
    assert "--spend-again" in run_job(smooth, product="density").stderr
    assert run_job(smooth, "--spend-again", product="density").returncode == 0
    again = list(documents(broker, "alone-density"))[len(found) :]
    assert [row["charge"]["publish"] for row in again] == [0] * len(again) != []  # the first look has spent it all
    hiding = write_settings(tmp_path, broker, "both", source="density-fixes", density=SECTION + 'neighbours = "add-remove"\n')
    assert "Traces tell who is present" in run_job(hiding, "--spend-again", product="density").stderr
