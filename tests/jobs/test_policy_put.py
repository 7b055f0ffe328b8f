"""`wayveil policy put`: what is published, from when it holds, and what is refused before it is."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jobs.errors import UserError
from jobs.kafka import SendReport
from jobs.policy import publish
from jobs.policy.cli import policy_app
from jobs.policy.publish import put_edit, put_policy
from jobs.protect import read_settings
from streaming.settings import KafkaSettings

DAY = "2026-06-01T"
TICK = 29_671_920  # 12:00 UTC of that day
POLICY = """
version = {version}
user_edits = {edits}
[calendars.night]
from = "22:00"
to = "06:00"
[[rule]]
subject = "default"
audience = "*"
level = "full"
"""
EDIT = """
version = {version}
[[rule]]
audience = "{audience}"
time = "{time}"
level = "perturbed"
radius_m = {radius_m}
"""


class Topic:
    """The topic `policies`, kept by the test."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records: list[tuple[int, int, int, bytes | None, bytes | None]] = []
        self.folder = folder
        (folder / "first.toml").write_text(POLICY.format(version=1, edits="true"))
        self.path = folder / "wayveil.toml"
        self.path.write_text(
            f'policy = "{folder}/first.toml"\nlive_policies = true\n[region]\nname = "Helsinki"\nsouth = 60.1\nwest = 24.7\nnorth = 60.3\n'
            'east = 25.2\n[secret]\nenv = "NONE"\n[privacy]\nepoch_ticks = 60\n'
        )
        self.settings = read_settings(self.path)
        monkeypatch.setattr(publish, "read_committed", lambda *_: iter(self.records))
        monkeypatch.setattr(publish, "send_all", self.send)

    def send(self, broker: KafkaSettings, records: list[Any]) -> SendReport:
        for topic, partition, key, value, log_ms in records:
            assert (topic, partition) == ("policies", 0)
            self.records.append((0, len(self.records), TICK * 60_000 if log_ms is None else log_ms, key, value))
        return SendReport(len(records), {})

    def edit(self, user: str, at: str, version: int = 1, audience: str = "*", time: str = "*", radius_m: float = 400) -> str:
        path = self.folder / "edit.toml"
        path.write_text(EDIT.format(version=version, audience=audience, time=time, radius_m=radius_m))
        return put_edit(self.settings, user, path, f"{DAY}{at}Z")

    def policy(self, at: str, version: int, edits: str = "true", start: str | None = None) -> str:
        path = self.folder / "policy.toml"
        path.write_text(POLICY.format(version=version, edits=edits))
        return put_policy(self.settings, path, f"{DAY}{start}Z" if start else None, f"{DAY}{at}Z")


@pytest.fixture
def topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Topic:
    return Topic(tmp_path, monkeypatch)


def test_an_edit_is_told_from_when_it_holds(topic: Topic) -> None:
    told = topic.edit("ann", "12:00", 3)
    assert told == f"edit 3 of user ann holds from tick {TICK + 60} on, which starts at 2026-06-01 13:00:00 UTC"
    (*_, key, value) = topic.records[0]
    assert key == b"user:ann/3"
    assert b'"policy-edit"' in (value or b"")
    assert "13:00" in topic.edit("bob", "12:59:59")


def test_a_version_is_told_from_when_it_holds(topic: Topic) -> None:
    assert "version 2 holds from tick" in topic.policy("12:00", 2)
    assert topic.records[0][3] == b"deployment/2"
    with pytest.raises(UserError, match="The last version is 2"):
        topic.policy("12:01", 2)
    with pytest.raises(UserError, match="a time that has begun"):
        topic.policy("12:01", 3, start="12:00")
    topic.records.append((0, 1, TICK * 60_000 + 3_600_000, None, b'{"wayveil":"heartbeat"}'))
    with pytest.raises(UserError, match="a time that has begun"):
        topic.policy("12:01", 3, start="12:30")


def test_what_the_jobs_would_reject_is_refused(topic: Topic) -> None:
    topic.edit("ann", "12:00", 3)
    with pytest.raises(UserError, match="in this epoch already"):
        topic.edit("ann", "12:59", 4)
    with pytest.raises(UserError, match="that `version` or a higher one"):
        topic.edit("ann", "13:00", 3)
    topic.policy("13:00", 2, "false", "13:30")
    with pytest.raises(UserError, match="permits no edits"):
        topic.edit("ann", "13:10", 4)
    assert len(topic.records) == 2


def test_problems_of_an_edit_are_told_with_their_lines(topic: Topic) -> None:
    with pytest.raises(UserError, match=r"line 4, rule 1\.audience: unknown role `city`: there are `default`"):
        topic.edit("ann", "12:00", audience="city")
    with pytest.raises(UserError, match=r"line 5, rule 1\.time: unknown calendar `nigth`: did you mean `night`"):
        topic.edit("ann", "12:00", time="nigth")
    with pytest.raises(UserError, match=r"line 7, rule 1\.radius_m: should be from 200"):
        topic.edit("ann", "12:00", radius_m=1)
    with pytest.raises(UserError, match=r"user: |no text"):
        topic.edit("\udcff", "12:00")
    assert not topic.records


def test_the_command_line_takes_a_user(topic: Topic) -> None:
    path = topic.folder / "mine.toml"
    path.write_text("version = 1\nrule = []\n")
    at = ["--settings", str(topic.path), "--log-time", f"{DAY}12:00Z", str(path)]
    assert "edit 1 of user ann holds from tick" in CliRunner().invoke(policy_app, ["put", "--user", "ann", *at]).output
    refused = CliRunner().invoke(policy_app, ["put", "--user", "bob", "--from", f"{DAY}12:30Z", *at])
    assert isinstance(refused.exception, UserError)
    assert "omit --from" in str(refused.exception)


def test_without_live_policies_nothing_is_published(topic: Topic) -> None:
    topic.path.write_text(topic.path.read_text().replace("live_policies = true", ""))
    topic.settings = read_settings(topic.path)
    with pytest.raises(UserError, match="live_policies = true"):
        topic.edit("ann", "12:00")
