"""The contenders, each started as its users start it, on topics of its own, and held to the full count."""

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import orjson

from geo.plane import Plane, Region
from geo.tiling.tiling import tile
from jobs.bench.loop import run_loop
from jobs.bench.processes import Cost, ProcessWatch
from jobs.bench.workload import PARTITIONS, REGION, Workload, records_in, require_count
from jobs.errors import UserError
from jobs.kafka import TopicSpec, create_topics, documents, product_topics
from jobs.preflight import require_jars
from jobs.protect import read_settings
from streaming.settings import PRODUCTS, PrivacySettings, TopicNames
from streaming.tiling_file import Origin, save_tiling

__all__ = ["CONTENDERS", "Lab"]

CONTENDERS = ("loop", "identity", "traces", "density")
PARALLELISM = 2
CELL_M, FANOUTS = 100, (16, 16, 16)
LOOK_EVERY_S = 1.0
END_S = 10.0
SECRET = "no secret: the bench's fixes are nobody's"


@dataclass(frozen=True)
class Lab:
    """One broker, and the folder that takes settings, checkpoints and the contenders' own words.

    Parameters
    ----------
    bootstrap
        Address of the broker.
    folder
        Existing folder.
    """

    bootstrap: str
    folder: Path

    def run(self, contender: str, workload: Workload, name: str) -> Cost:
        """Run a contender over a filled topic.

        Parameters
        ----------
        contender
            One of `CONTENDERS`.
        workload
            What the topic holds.
        name
            Name of this run, as part of the names of topics and files; each run needs another.

        Returns
        -------
        Cost
            Of the loop from its first poll to its last acknowledgement, of the others as a whole process with its start.

        Raises
        ------
        UserError
            If it fails, or does not account for every record.
        """
        if contender in PRODUCTS:
            return self.job(contender, workload, name)[0]
        target = f"{name}-{contender}"
        create_topics(self.bootstrap, {target: TopicSpec(PARTITIONS)})
        if contender == "loop":
            return run_loop(self.bootstrap, workload.topic, target)
        jars = [jar.resolve().as_uri() for jar in require_jars("flink", "flink-sql-connector-kafka")]
        command = [sys.executable, "-m", "streaming.flink.identity", self.bootstrap, workload.topic, target, str(PARALLELISM), *jars]
        cost, _ = self._run(command, target)
        require_count(f"The identity job's topic {target}", workload.total, records_in(self.bootstrap, target))
        return cost

    def job(
        self,
        product: str,
        workload: Workload,
        name: str,
        variables: Mapping[str, str] | None = None,
        each_second: Callable[[ProcessWatch], None] | None = None,
    ) -> tuple[Cost, ProcessWatch]:
        """Run the job of one product under its default settings, but for a budget that lasts; density on a tree of 4,000 tiles.

        Parameters
        ----------
        product
            One of `PRODUCTS`.
        workload, name
            As for `run`.
        variables
            Environment variables to add.
        each_second
            Called after each look at the job's processes.

        Returns
        -------
        tuple of (Cost, ProcessWatch)
            Of the whole process, with its start.

        Raises
        ------
        UserError
            If it fails, does not account for every record, or did not use every fix (density: one of each user and tick).
        """
        settings_file = self.folder / f"{name}-{product}.toml"
        settings_file.write_text(self._settings(workload, f"{name}-{product}"), encoding="utf-8")
        settings = read_settings(settings_file)
        create_topics(self.bootstrap, product_topics(settings, PARTITIONS, replay=True))
        program = str(Path(sysconfig.get_path("scripts")) / "wayveil")
        command = [program, "run", product, "--settings", str(settings_file), "--bounded"]
        cost, watch = self._run(command, f"{name}-{product}", variables, each_second)
        balances = list(documents(self.bootstrap, settings.topics.balance))
        require_count(f"The {product} job's balance", workload.total, sum(balance["records"] for balance in balances))
        used = sum(balance["used"] + (balance["merged"] if product == "density" else 0) for balance in balances)
        require_count(f"The {product} job's part of used fixes", workload.records, used)
        return cost, watch

    def _settings(self, workload: Workload, name: str) -> str:
        secret_file = self.folder / "secret.txt"
        secret_file.write_text(SECRET, encoding="utf-8")
        tiling_file = self.folder / "tiling.parquet"
        if not tiling_file.exists():
            plane = Plane(Region("bench", **REGION))
            save_tiling(
                tiling_file, tile(plane, CELL_M, FANOUTS), Origin("the region's box", "none needed", workload.users, 1.0, "replace-one")
            )
        lines = [
            "[kafka]",
            f'bootstrap = "{self.bootstrap}"',
            "[topics]",
            *(f'{output} = "{name}-{output}"' for output in TopicNames.model_fields),
            "[[source]]",
            f'topic = "{workload.topic}"',
            "[region]",
            'name = "bench"',
            *(f"{side} = {degrees}" for side, degrees in REGION.items()),
            "[privacy]",
            f"releases_per_window = {PrivacySettings().window_ticks}",  # a budget that ends would leave less to do in a longer run
            "[density]",
            f"tiling = {_toml(tiling_file)}",
            "epsilon = 60.0",  # 1 a tick
            "[secret]",
            f"file = {_toml(secret_file)}",
            "[job]",
            f"parallelism = {PARALLELISM}",
            f"checkpoint_dir = {_toml(self.folder / 'checkpoints' / name)}",
        ]
        return "\n".join(lines) + "\n"

    def _run(
        self,
        command: list[str],
        name: str,
        variables: Mapping[str, str] | None = None,
        each_second: Callable[[ProcessWatch], None] | None = None,
    ) -> tuple[Cost, ProcessWatch]:
        """Run a program to its end; whatever stops the bench stops the program and all that it started."""
        log_file = self.folder / f"{name}.log"
        with log_file.open("wb") as log:
            watch = ProcessWatch()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(variables or {})},
                start_new_session=True,
            )
            try:
                while not _ended_within(process, LOOK_EVERY_S):
                    watch.look(process.pid)
                    if each_second is not None:
                        each_second(watch)
                cost = watch.cost()
                watch.await_all(END_S)
            finally:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        if process.returncode != 0:
            raise UserError(f"The bench's job {name} failed: its reason is in {log_file}.")
        return cost, watch


def _ended_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _toml(path: Path) -> str:
    return orjson.dumps(str(path)).decode()
