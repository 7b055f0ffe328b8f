"""Logs of the past, through the job: the same rows in whatever order and however fast, nothing lost when a replay is killed."""

import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest

from jobs.kafka import create_topics, product_topics, read_committed
from jobs.protect import read_settings
from streaming.settings import KafkaSettings
from tests.integration.program import ROOT, write_settings

DATA = ROOT.parent / "shared" / "data"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not (DATA / "geolife").is_dir(), reason="the public samples are not beside this checkout"),
]
BEIJING = '[region]\nname = "beijing"\nsouth = 39.5\nwest = 115.5\nnorth = 40.6\neast = 117.5\n'
PATHS = (DATA / "geolife" / "000", DATA / "tdrive" / "1.txt", DATA / "porto")
FIXES = 3_634 + 588 + 5_421
DENSITY = "epsilon = 6.0\nwindow_ticks = 6\n"


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-c", "from jobs.cli import main; main()", "replay", *map(str, words)]


def replay(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), cwd=ROOT, capture_output=True, text=True, check=False, timeout=400)


def some(folder: Path) -> tuple[Path, ...]:
    """Write the beginning of each sample: ticks are many where fixes are far apart."""
    kept = {"geolife/000/Trajectory/20081023025304.plt": 914, "tdrive/1.txt": 40, "porto/porto_native_155trips.csv": 5}
    for name, lines in kept.items():
        path = folder / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"".join((DATA / name).read_bytes().splitlines(keepends=True)[:lines]))
    return folder / "geolife", folder / "tdrive", folder / "porto"


def log(broker: KafkaSettings, topic: str) -> list[list[tuple[int, bytes | None]]]:
    """Return what each partition holds, in its order."""
    parts: dict[int, list[tuple[int, bytes | None]]] = {}
    for partition, _, t_ms, _, value in read_committed(broker, topic):
        parts.setdefault(partition, []).append((t_ms, value))
    return [parts[number] for number in sorted(parts)]


def test_a_killed_replay_goes_on_where_it_was_and_a_wrong_one_is_refused(broker: KafkaSettings, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(secrets.token_hex(32))
    settings = {}
    for name in ("calm", "killed"):
        settings[name] = write_settings(tmp_path, broker, f"replay-{name}", region=BEIJING)
        create_topics(broker, product_topics(read_settings(settings[name]), 2, replay=True))
    options = ("--folder", tmp_path / "notes")
    report = tmp_path / "report.json"
    calm = replay(*PATHS, "--settings", settings["calm"], *options, "--report", report)
    assert calm.returncode == 0, calm.stderr
    assert sum(file["sent"] for file in orjson.loads(report.read_bytes())) == FIXES
    expected = log(broker, "replay-calm-fixes")
    assert sum(b"wayveil" not in (value or b"") for part in expected for _, value in part) == FIXES
    assert all(times == sorted(times) for part in expected if (times := [t_ms for t_ms, _ in part]))

    # some months of fixes in half a minute: it is killed in their midst
    slow = (*PATHS, "--settings", settings["killed"], *options, "--rate", "1000000x")
    process = subprocess.Popen(command(*slow), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while sum(map(len, log(broker, "replay-killed-fixes"))) < 500:
        assert process.poll() is None, "the replay ended before it could be killed"
        time.sleep(0.2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert sum(map(len, log(broker, "replay-killed-fixes"))) < sum(map(len, expected))

    again = (*PATHS, "--settings", settings["killed"], *options)
    assert "--resume" in replay(*again).stderr
    assert "does not hold what this replay writes" in replay(*PATHS[:2], *again[3:], "--resume").stderr
    assert replay(*reversed(PATHS), *again[3:], "--resume").returncode == 0
    assert log(broker, "replay-killed-fixes") == expected
    assert "no unfinished replay" in replay(*again, "--resume").stderr
    assert "too late" in replay(*again).stderr


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_files_are_byte_identical_in_any_order_at_any_parallelism_and_speed(broker: KafkaSettings, tmp_path: Path, whole: bool) -> None:
    (tmp_path / "secret").write_text(secrets.token_hex(32))
    samples = PATHS if whole else some(tmp_path / "some")
    spread = tmp_path / "tracks"
    spread.mkdir()
    odd = spread / "note.txt"
    odd.write_text("no fixes here\n")
    ways = {
        "a": (samples, 2, ()),
        "b": (samples[::-1], 1, ("--rate", "20000000x")),
        "c": ((samples[1], spread, samples[2], samples[0]), 2, ("--rate", "50000000x")),
    }
    sent = set()
    for name, (paths, parallelism, rate) in ways.items():
        settings = write_settings(tmp_path, broker, "files", parallelism=parallelism, region=BEIJING, density=DENSITY)
        report = tmp_path / f"{name}.json"
        options = ("--out", tmp_path / name, "--folder", tmp_path / f"notes-{name}", "--report", report, *rate)
        done = replay(*paths, "--settings", settings, "--to", "files", *options)
        assert done.returncode == (3 if spread in paths else 0), done.stderr[-2000:]
        sent.add(sum(file["sent"] for file in orjson.loads(report.read_bytes())))
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.parquet"))
    assert [str(path) for path in files if len(path.parts) == 1] == ["density.parquet", "files-traces.parquet", "releases.parquet"]
    for file in files:
        if file.name not in ("rejected.parquet", "balance.parquet"):
            assert len({(tmp_path / name / file).read_bytes() for name in ways}) == 1, file
    assert pq.read_table(tmp_path / "a" / "files-traces.parquet").num_rows > 100
    assert len(sent) == 1
    balance = pq.read_table(tmp_path / "a" / "operators" / "balance.parquet").to_pylist()
    for product in ("traces", "density"):
        rows = [row for row in balance if row["product"] == product]
        assert {sum(row["records"] - row["control"] for row in rows)} == sent
        assert sum(row["unclosed"] for row in rows) == 0

    taken = replay(*samples, "--settings", settings, "--to", "files", "--out", tmp_path / "a")
    assert "holds a replay already" in taken.stderr
    other = replay(samples[0], "--settings", settings, "--to", "files", "--out", tmp_path / "d", "--folder", tmp_path / "notes-a")
    assert other.returncode == 2
    assert "--spend-again" in other.stderr
