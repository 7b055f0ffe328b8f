"""Several audiences of one job: their own topics and views, one charge, and an audit that adds all of it up."""

import secrets
from collections import Counter
from pathlib import Path

import numpy as np
import orjson
import pytest

from geo.anchors.index import AnchorIndex
from geo.plane import Plane
from jobs.audit import audit_ledger
from jobs.kafka import Record, create_topics, documents, product_topics
from jobs.protect import read_settings
from jobs.runs import charges
from streaming.anchor_file import AnchorOrigin, save_anchors
from streaming.charges import distinct_charges
from streaming.settings import KafkaSettings
from tests.integration.program import feed, run_job, write_settings

pytestmark = pytest.mark.integration

START = 1_700_000_040_000
USERS, MINUTES = 60, 6
POLICY = """
version = 7
time_zone = "Europe/Helsinki"
[[rule]]
subject = "default"
audience = "dispatch"
level = "full"
[[rule]]
subject = "default"
audience = "partners"
level = "perturbed"
radius_m = 800
every = 3
[[rule]]
subject = "default"
audience = "city"
level = "perturbed"
radius_m = 400
form = "category"
categories = { default = "perturbed", health = "none" }
[[rule]]
subject = "user:u7"
audience = "*"
level = "none"
"""
AUDIENCES = """
[[audience]]
name = "dispatch"
[[audience]]
name = "partners"
usage = "planning"
[[audience]]
name = "city"
"""


def send(broker: KafkaSettings, topic: str) -> int:
    records: list[Record] = []
    for second in range(0, MINUTES * 60, 20):
        for user in range(USERS):
            t = START + second * 1000
            value = orjson.dumps({"user": f"u{user}", "t": t, "lat": 60.17 + user / 10_000, "lon": 24.9 + second / 100_000})
            records.append((topic, user % 2, b"k", value, t))
    return feed(broker, topic, records, START + MINUTES * 60_000 + 40_000)


def save_places(path: Path, settings: Path) -> None:
    lat, lon = (axis.ravel() for axis in np.meshgrid(np.linspace(60.1, 60.3, 40), np.linspace(24.7, 25.2, 40)))
    plane = Plane(read_settings(settings).region.region())
    index = AnchorIndex(plane, ("food", "health"), [f"p{i}" for i in range(len(lat))], lat, lon, [[i % 2] for i in range(len(lat))])
    save_anchors(path, index, AnchorOrigin("made for a test", "none needed"))


def test_three_audiences(broker: KafkaSettings, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(secrets.token_hex(32))
    (tmp_path / "policy.toml").write_text(POLICY)
    head = f'policy = "{tmp_path}/policy.toml"\nanchors = "{tmp_path}/anchors.parquet"\n'
    privacy = "full_radius_m = 100\nreleases_per_window = 500\n"
    path = write_settings(tmp_path, broker, "three", head=head, audiences=AUDIENCES, privacy=privacy)
    save_places(tmp_path / "anchors.parquet", path)
    settings = read_settings(path)
    create_topics(broker, product_topics(settings, 2, replay=True))
    sent = send(broker, "three-fixes")
    done = run_job(path)
    assert done.returncode == 0, done.stderr[-3000:]

    dispatch, partners, city = (list(documents(broker, f"three-traces.{name}")) for name in ("dispatch", "partners", "city"))
    assert len(dispatch) == len(city) == (USERS - 1) * MINUTES
    assert {row["tick"] % 3 for row in partners} == {0}
    assert len(partners) == (USERS - 1) * MINUTES // 3
    assert {(row["status"], row["policy"]) for row in [*dispatch, *partners, *city]} == {("released", 7)}
    assert [{row["radius_m"] for row in rows} for rows in (dispatch, partners, city)] == [{100}, {800}, {400}]
    assert {row["form"] for row in city} <= {"category", "unanchored"}
    assert {row.get("category") for row in city} <= {"food", None}
    assert "food" in {row.get("category") for row in city}
    assert not any("lat" in row for row in city)
    names = [{row["user"] for row in rows} for rows in (dispatch, partners, city)]
    assert not names[0] & names[1] | names[1] & names[2] | names[0] & names[2]

    paid = distinct_charges(charges(settings))
    assert len(paid) == (USERS - 1) * MINUTES
    assert set(paid["charge_micro"].tolist()) == {row["epsilon_micro"] for row in dispatch}
    balance = list(documents(broker, "three-balance"))
    assert sum(row["records"] for row in balance) == sent
    assert sum(row["withheld"] for row in balance) == MINUTES * 3
    found = audit_ledger(settings)
    assert Counter({name: one.releases for name, one in found.items()}) == {
        "dispatch": len(dispatch),
        "partners": len(partners),
        "city": len(city),
    }

    (tmp_path / "policy.toml").write_text(POLICY.replace("radius_m = 400", "radius_m = 1600"))
    assert "--spend-again" in run_job(path).stderr
