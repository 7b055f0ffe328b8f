"""Inputs that differ only in where somebody was: what is published, when and under which key is the same."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from jobs.kafka import Record, create_topics, documents, product_topics, read_committed
from jobs.protect import read_settings
from streaming.settings import KafkaSettings
from tests.integration.program import feed, rows, run_job, write_settings

pytestmark = pytest.mark.integration

START = 1_700_000_040_000
TICK_MS, TICKS, USERS = 60_000, 6, 6
TINY = 1e-7  # degrees: a centimetre

Place = Callable[[int, int], dict[str, Any]]


def at_home(user: int, tick: int) -> dict[str, Any]:
    return {"lat": 60.1703 + user / 100, "lon": 24.9304 + tick / 1000}


def elsewhere(user: int, tick: int) -> dict[str, Any]:
    """Far away, outside the region, out of range, at 0,0, of the wrong type, or missing."""
    places: tuple[dict[str, Any], ...] = (
        {"lat": 60.3, "lon": 25.0},
        {"lat": -33.9, "lon": 151.2},
        {"lat": 95, "lon": 24.9},
        {"lat": 0, "lon": 0},
        {"lat": True, "lon": 24.9},
        {},
    )
    return dict(places[(user + tick) % len(places)])


def nudged(user: int, tick: int) -> dict[str, Any]:
    """User 0 moves within a cell in tick 2, user 1 moves out of a cell in tick 3; nobody else moves."""
    place = at_home(user, tick)
    step = {(0, 2): TINY, (1, 3): 0.001}.get((user, tick), 0.0)
    return {**place, "lat": place["lat"] + step}


def run(broker: KafkaSettings, folder: Path, name: str, place: Place) -> None:
    settings = write_settings(folder, broker, name, privacy="releases_per_window = 4\n")
    create_topics(broker, product_topics(read_settings(settings), 2, replay=True))
    records: list[Record] = []
    for tick in range(TICKS):
        for user in range(USERS):
            if (tick, user) != (3, 4):  # somebody is absent once
                t = START + tick * TICK_MS + 1000 * user
                value = orjson.dumps({"user": f"u{user}", "t": t, **place(user, tick)})
                records.append((f"{name}-fixes", 0, None, value, t))  # the other partition has heartbeats only
    feed(broker, f"{name}-fixes", records, START + (TICKS + 1) * TICK_MS)
    done = run_job(settings)
    assert done.returncode == 0, done.stderr[-2000:]


def without_place(broker: KafkaSettings, topic: str) -> list[str]:
    """Return keys and rows without the position, sorted."""
    found = [(key, orjson.loads(value or b"")) for *_, key, value in read_committed(broker, topic)]
    return sorted(str((key, {name: value for name, value in row.items() if name not in ("lat", "lon", "look")})) for key, row in found)


def by_row(broker: KafkaSettings, topic: str) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["user"], row["tick"]): row for row in documents(broker, topic)}


def test_place_decides_nothing_but_the_position(broker: KafkaSettings, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(secrets.token_hex(32))
    for name, place in (("home", at_home), ("elsewhere", elsewhere), ("nudged", nudged)):
        run(broker, tmp_path, name, place)

    statuses = {row["status"] for row in documents(broker, "home-traces")}
    assert statuses == {"released", "absent", "withheld"}
    for name in ("elsewhere", "nudged"):
        assert without_place(broker, f"{name}-traces") == without_place(broker, "home-traces")
        assert rows(broker, f"{name}-releases") == rows(broker, "home-releases")

    home, moved = by_row(broker, "home-traces"), by_row(broker, "nudged-traces")
    changed = [name for name in home if home[name] != moved[name]]
    assert len(changed) == 1
    assert home[changed[0]]["tick"] == START // TICK_MS + 3
