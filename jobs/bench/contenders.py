"""The contenders, each started as its users start it, on topics of its own, and held to the full count."""

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson

from geo.anchors.index import AnchorIndex
from geo.plane import Plane, Region
from geo.tiling.tiling import tile
from jobs.bench.loop import run_loop
from jobs.bench.processes import Cost, ProcessWatch
from jobs.bench.workload import PARTITIONS, REGION, Workload, records_in, require_count
from jobs.errors import UserError
from jobs.kafka import TopicSpec, create_topics, documents, heartbeat, product_topics
from jobs.preflight import require_jars
from jobs.protect import read_settings
from streaming.anchor_file import AnchorOrigin, save_anchors
from streaming.settings import KafkaSettings, PrivacySettings, TopicNames
from streaming.tiling_file import Origin, save_tiling

__all__ = ["CONTENDERS", "Lab"]

CONTENDERS = ("loop", "identity", "traces", "policies", "density")
"""`policies` is the traces job under a live policy with groups and a calendar, whose one audience is told anchors."""

JOBS = {"traces": "traces", "policies": "traces", "density": "density"}
"""The product of each contender that is a job of this project."""

PLACES = 100
"""Anchors along each side of the region."""

POLICY = """
version = 1
time_zone = "Europe/Helsinki"
[groups.staff]
users = ["user-0000001", "user-0000002"]
[calendars.work]
days = ["mon", "tue", "wed", "thu", "fri"]
from = "08:00"
to = "16:00"
[[rule]]
subject = "default"
audience = "city"
level = "full"
form = "anchor"
categories = { default = "full", health = "perturbed" }
[[rule]]
subject = "group:staff"
audience = "city"
time = "work"
level = "perturbed"
radius_m = 400
"""
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
    broker
        Where the broker is, and how it is reached.
    folder
        Existing folder.
    """

    broker: KafkaSettings
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
        if contender in JOBS:
            return self.job(contender, workload, name)[0]
        target = f"{name}-{contender}"
        create_topics(self.broker, {target: TopicSpec(PARTITIONS)})
        if contender == "loop":
            return run_loop(self.broker, workload.topic, target)
        jars = [jar.resolve().as_uri() for jar in require_jars("flink", "flink-sql-connector-kafka")]
        command = [sys.executable, "-m", "streaming.flink.identity", self.broker.bootstrap, workload.topic, target, str(PARALLELISM), *jars]
        cost, _ = self._run(command, target)
        require_count(f"The identity job's topic {target}", workload.total, records_in(self.broker, target))
        return cost

    def job(
        self,
        contender: str,
        workload: Workload,
        name: str,
        variables: Mapping[str, str] | None = None,
        each_second: Callable[[ProcessWatch], None] | None = None,
    ) -> tuple[Cost, ProcessWatch]:
        """Run one of the jobs under its default settings, but for a budget that lasts; density on a tree of 4,000 tiles.

        Parameters
        ----------
        contender
            One of `JOBS`.
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
        product, name = JOBS[contender], f"{name}-{contender}"
        settings_file = self.folder / f"{name}.toml"
        settings_file.write_text((self._policies() if contender == "policies" else "") + self._settings(workload, name), encoding="utf-8")
        settings = read_settings(settings_file)
        create_topics(self.broker, product_topics(settings, PARTITIONS, replay=True))
        if settings.live_policies:
            heartbeat(self.broker, settings.topics.policies, workload.end_ms)
        program = str(Path(sysconfig.get_path("scripts")) / "wayveil")
        command = [program, "run", product, "--settings", str(settings_file), "--bounded"]
        cost, watch = self._run(command, name, variables, each_second)
        balances = list(documents(self.broker, settings.topics.balance))
        require_count(f"The {contender} job's balance", workload.total, sum(balance["records"] for balance in balances))
        used = sum(balance["used"] + (balance["merged"] if product == "density" else 0) for balance in balances)
        require_count(f"The {contender} job's part of used fixes", workload.records, used)
        return cost, watch

    def _policies(self) -> str:
        """Write policy and anchors, and return the settings that name them."""
        policy_file, anchors_file = self.folder / "policy.toml", self.folder / "anchors.parquet"
        policy_file.write_text(POLICY, encoding="utf-8")
        if not anchors_file.exists():
            sides = (np.linspace(REGION[low], REGION[high], PLACES + 2)[1:-1] for low, high in (("south", "north"), ("west", "east")))
            lat, lon = (axis.ravel() for axis in np.meshgrid(*sides))
            ids, categories = [f"place-{number}" for number in range(len(lat))], [[number % 3] for number in range(len(lat))]
            anchors = AnchorIndex(Plane(Region("bench", **REGION)), ("food", "health", "shop"), ids, lat, lon, categories)
            save_anchors(anchors_file, anchors, AnchorOrigin("a lattice", "none needed"))
        files = f"policy = {_toml(policy_file)}\nanchors = {_toml(anchors_file)}\n"
        return f'{files}live_policies = true\naudience = [{{ name = "city" }}]\n'

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
            f'bootstrap = "{self.broker.bootstrap}"',
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
