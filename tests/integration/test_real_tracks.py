"""Six GeoLife users and two T-Drive taxis through Kafka and the job: exact counts, the promised displacement, no say of arrival."""

import secrets
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from pyproj import Geod

from geo.privacy.prf import subkey
from jobs.audit import audit_ledger
from jobs.kafka import Record, create_topics, documents, product_topics
from jobs.protect import read_settings
from streaming.decode import user_id
from streaming.pseudonyms import Pseudonyms
from streaming.secret import load_secret
from streaming.settings import KafkaSettings
from tests.integration.program import ROOT, feed, rows, run_job, write_settings

DATA = ROOT.parent / "shared" / "data"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not (DATA / "geolife").is_dir(), reason="the GeoLife and T-Drive samples are not beside this checkout"),
]

BEIJING = '[region]\nname = "beijing"\nsouth = 39.5\nwest = 115.5\nnorth = 40.6\neast = 117.5\n'
INSIDE = (39.55, 115.6, 40.55, 117.4)
TICK_MS, MAX_FIXES = 60_000, 60
CHINA = timezone(timedelta(hours=8))

Fix = tuple[str, int, float, float]


def milliseconds(text: str, zone: timezone = UTC) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=zone).timestamp() * 1000)


def real_fixes() -> list[Fix]:
    fixes = []
    for track in sorted((DATA / "geolife").glob("*/Trajectory/*.plt")):
        for line in track.read_text().splitlines()[6:]:
            lat, lon, _, _, _, day, clock = line.split(",")
            fixes.append((f"geolife-{track.parts[-3]}", milliseconds(f"{day}T{clock}"), float(lat), float(lon)))
    for taxi in sorted((DATA / "tdrive").glob("*.txt")):
        for line in taxi.read_text().splitlines():
            name, when, lon, lat = line.split(",")
            fixes.append((f"tdrive-{name}", milliseconds(when, CHINA), float(lat), float(lon)))
    return sorted(fixes, key=lambda fix: fix[1])


def send(broker: KafkaSettings, topic: str, fixes: list[Fix], partitions: int) -> int:
    records: list[Record] = [
        (topic, sum(user.encode()) % partitions, None, orjson.dumps({"user": user, "t": t, "lat": lat, "lon": lon}), t)
        for user, t, lat, lon in fixes
    ]
    return feed(broker, topic, records, fixes[-1][1] + 2 * TICK_MS)


def test_real_tracks(broker: KafkaSettings, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(secrets.token_hex(32))
    fixes = real_fixes()
    # the same log in another interleaving: one partition, users in another order within each millisecond
    other = sorted(fixes, key=lambda fix: (fix[1], fix[0][::-1]))
    sent = {}
    for name, order, partitions in (("real", fixes, 2), ("reordered", other, 1)):
        settings = write_settings(
            tmp_path, broker, name, parallelism=partitions, region=BEIJING, privacy="releases_per_window = 600\nepoch_ticks = 10080\n"
        )
        create_topics(broker, product_topics(read_settings(settings), partitions, replay=True))
        sent[name] = send(broker, f"{name}-fixes", order, partitions)
        done = run_job(settings)
        assert done.returncode == 0, done.stderr[-2000:]
    for product in ("traces", "releases"):
        assert rows(broker, f"real-{product}") == rows(broker, f"reordered-{product}")

    totals: Counter[str] = Counter()
    for row in documents(broker, "real-balance"):
        totals.update({part: row[part] for part in ("records", "used", "merged", "duplicate", "late", "rejected", "withheld", "control")})
    distinct = {(user, t) for user, t, *_ in fixes}
    assert totals["records"] == sent["real"] == len(fixes) + 2
    assert totals["duplicate"] == len(fixes) - len(distinct)
    assert (totals["late"], totals["rejected"], totals["control"]) == (0, 0, 2)
    assert totals["used"] + totals["merged"] + totals["withheld"] == len(distinct)

    traces = list(documents(broker, "real-traces"))
    status = Counter(row["status"] for row in traces)
    assert status["released"] + status["withheld"] == len({(user, t // TICK_MS) for user, t in distinct})
    settings_read = read_settings(settings.with_name("real-4.0.toml"))
    found = audit_ledger(settings_read)["default"]
    assert found.releases == status["released"]
    check_displacement(fixes, traces, load_secret(settings_read.secret))


def check_displacement(fixes: list[Fix], traces: list[dict[str, Any]], secret: bytes) -> None:
    windows: dict[tuple[str, int], dict[int, tuple[float, float]]] = defaultdict(dict)
    for user, t, lat, lon in fixes:
        windows[user, t // TICK_MS].setdefault(t, (lat, lon))
    key = subkey(secret, b"user-id")
    names = Pseudonyms(secret, "default", 10_080)
    users = {user: np.array([user_id(key, user)], np.uint64) for user, *_ in fixes}
    truth: dict[tuple[str, int], Any] = {}
    for (user, tick), by_time in windows.items():
        places = np.array(list(by_time.values()))
        south, west, north, east = INSIDE
        inside = (places[:, 0] > south) & (places[:, 0] < north) & (places[:, 1] > west) & (places[:, 1] < east)
        if inside.all() and len(places) <= MAX_FIXES and np.ptp(places, axis=0).max() < 0.02:
            truth[names.of(users[user], tick)[0], tick] = places.mean(axis=0)
    known = [row for row in traces if row["status"] == "released" and (row["user"], row["tick"]) in truth]
    out = np.array([(row["lon"], row["lat"]) for row in known])
    true = np.array([truth[row["user"], row["tick"]][::-1] for row in known])
    distance = Geod(ellps="WGS84").inv(out[:, 0], out[:, 1], true[:, 0], true[:, 1])[2]
    assert len(distance) > 1000
    for radius, share in (("r50_m", 0.5), ("r95_m", 0.95)):
        promised = float(known[0][radius])
        assert abs((distance <= promised).mean() - share) < 4.5 * np.sqrt(share * (1 - share) / len(distance)), radius
