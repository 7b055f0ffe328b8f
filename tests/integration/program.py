"""What the integration tests share: settings of a run, the program that users start, and the rows that it wrote."""

import subprocess
import sys
from pathlib import Path

from geo.plane import Plane
from geo.tiling.tiling import tile
from jobs.kafka import Record, heartbeat, read_committed, send_all
from jobs.protect import read_settings
from streaming.settings import KafkaSettings, TopicNames
from streaming.tiling_file import Origin, save_tiling

USERS = 100
ROOT = Path(__file__).parents[2]
HELSINKI = '[region]\nname = "helsinki"\nsouth = 60.0\nwest = 24.5\nnorth = 60.4\neast = 25.4\n'


def write_settings(
    folder: Path,
    broker: KafkaSettings,
    name: str,
    *,
    source: str | None = None,
    ratio: float = 4.0,
    parallelism: int = 2,
    privacy: str = "",
    job: str = "",
    region: str = HELSINKI,
    density: str | None = None,
    head: str = "",
    audiences: str = "",
) -> Path:
    """Write the settings of a run whose output topics begin with `name`.

    `privacy` and `job` are the rest of these sections, `density` of that one, `head` and `audiences` are whole lines.
    """
    topics = "\n".join(f'{topic} = "{name}-{topic}"' for topic in TopicNames.model_fields)
    path = folder / f"{name}-{ratio}.toml"
    path.write_text(
        f'{head}[kafka]\nbootstrap = "{broker.bootstrap}"\n[topics]\n{topics}\n[[source]]\ntopic = "{source or f"{name}-fixes"}"\n'
        f'{region}[secret]\nfile = "{folder}/secret"\n[privacy]\nratio = {ratio}\n{privacy}'
        f'[job]\ncheckpoint_dir = "{folder}/checkpoints-{name}"\nshards = 8\nparallelism = {parallelism}\nrestarts = 0\n{job}{audiences}'
    )
    if density is not None:
        tiling = folder / "tiling.parquet"
        if not tiling.exists():
            plane = Plane(read_settings(path).region.region())
            save_tiling(tiling, tile(plane, 100, (6, 6)), Origin("the region's box", "none", USERS, 1.0, "replace-one"))
        path.write_text(f'{path.read_text()}[density]\ntiling = "{tiling}"\n{density}')
    return path


def feed(broker: KafkaSettings, topic: str, records: list[Record], end_ms: int) -> int:
    """Write records, and a heartbeat in each partition of their topic; return how many records these are."""
    report = send_all(broker, records)
    assert not report.failed
    return report.sent + heartbeat(broker, topic, end_ms)


def command(settings: Path, *options: str, product: str = "traces") -> list[str]:
    """Return the command line of a bounded run."""
    program = [sys.executable, "-c", "from jobs.cli import main; main()"]
    return [*program, "run", product, "--settings", str(settings), "--bounded", *options]


def run_job(settings: Path, *options: str, product: str = "traces") -> subprocess.CompletedProcess[str]:
    """Run the job to its end."""
    return subprocess.run(command(settings, *options, product=product), cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)


def rows(broker: KafkaSettings, topic: str) -> list[bytes]:
    """Return the committed rows of a topic, key and value, sorted."""
    return sorted((key or b"") + b" " + (value or b"") for *_, key, value in read_committed(broker, topic))
