"""What the integration tests share: settings of a run, the program that users start, and the rows that it wrote."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson

from jobs.kafka import read_committed

ROOT = Path(__file__).parents[2]
HELSINKI = '[region]\nname = "helsinki"\nsouth = 60.0\nwest = 24.5\nnorth = 60.4\neast = 25.4\n'


def write_settings(
    folder: Path,
    bootstrap: str,
    name: str,
    *,
    source: str | None = None,
    ratio: float = 4.0,
    parallelism: int = 2,
    privacy: str = "",
    job: str = "",
    region: str = HELSINKI,
) -> Path:
    """Write the settings of a run whose output topics begin with `name`."""
    topics = "\n".join(f'{topic} = "{name}-{topic}"' for topic in ("traces", "releases", "rejected", "late", "balance", "runs"))
    path = folder / f"{name}-{ratio}.toml"
    path.write_text(
        f'[kafka]\nbootstrap = "{bootstrap}"\n[topics]\n{topics}\n[[source]]\ntopic = "{source or f"{name}-fixes"}"\n'
        f'{region}[secret]\nfile = "{folder}/secret"\n[privacy]\nratio = {ratio}\n{privacy}'
        f'[job]\ncheckpoint_dir = "{folder}/checkpoints-{name}"\nshards = 8\nparallelism = {parallelism}\nrestarts = 0\n{job}'
    )
    return path


def documents(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """Return the committed rows of a topic as documents."""
    return [orjson.loads(value) for *_, value in read_committed(bootstrap, topic) if value is not None]


def command(settings: Path, *options: str) -> list[str]:
    """Return the command line of a bounded run."""
    program = [sys.executable, "-c", "from jobs.cli import main; main()"]
    return [*program, "run", "traces", "--settings", str(settings), "--bounded", *options]


def run_job(settings: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the job to its end."""
    return subprocess.run(command(settings, *options), cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)


def rows(bootstrap: str, topic: str) -> list[bytes]:
    """Return the committed rows of a topic, key and value, sorted."""
    return sorted((key or b"") + b" " + (value or b"") for *_, key, value in read_committed(bootstrap, topic))
