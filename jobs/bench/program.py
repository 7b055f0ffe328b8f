"""The program `wayveil bench`: fill the topics, look at the memory, let the contenders run in turn, report; all on a broker of its own."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from jobs.bench.contenders import CONTENDERS, Lab
from jobs.bench.memory import Collections, MemoryReport, jcmd_program, memory_report
from jobs.bench.processes import Cost
from jobs.bench.report import Machine, Report
from jobs.bench.workload import Workload
from jobs.broker import Broker
from jobs.errors import UserError
from streaming.settings import KafkaSettings

__all__ = ["Plan", "run_bench"]

REPORT = "report.json"
PACKAGES = ("confluent_kafka", "psutil")


@dataclass(frozen=True)
class Plan:
    """What the command line chooses.

    Parameters
    ----------
    small, big
        The two numbers of fixes that each contender treats, 1 <= small < big.
    users
        Number of users, at least 1.
    repeat
        How often each contender treats each of them, at least 1; medians count.
    memory
        Number of fixes of the memory run; 0 leaves it out.
    keep
        Whether the broker's data stay.
    """

    small: int
    big: int
    users: int
    repeat: int
    memory: int
    keep: bool


def run_bench(plan: Plan, folder: Path) -> Report:
    """Run the bench and print what it found; the same is in `report.json` in its folder.

    Parameters
    ----------
    plan
        What to run.
    folder
        Folder for the broker's data, settings and logs; those of an earlier bench are removed.

    Raises
    ------
    UserError
        If something is missing, or a contender fails or does not account for every record.
    """
    if plan.small >= plan.big:
        raise UserError(f"The bench compares two sizes: pass a --small below {plan.big:,}, or a larger --big.")
    if any(find_spec(name) is None for name in PACKAGES):
        raise UserError("The bench needs packages of its own: start it with `make bench`, which fetches them.")
    jcmd = jcmd_program() if plan.memory else None
    console = Console()
    folder = folder.resolve()
    machine = Machine(os.cpu_count() or 1, os.getloadavg()[0])
    with _fresh_broker(folder, plan.keep) as kafka:
        lab = Lab(kafka, folder / "runs")
        for records in sorted({plan.small, plan.big, plan.memory} - {0}):
            console.print(f"filling a topic with {records:,} fixes")
            Workload(records, plan.users).fill(kafka)
        memory = _memory_run(lab, Workload(plan.memory, plan.users), jcmd) if jcmd else None
        costs: dict[str, dict[int, list[Cost]]] = {name: {plan.small: [], plan.big: []} for name in CONTENDERS}
        for turn in range(1, plan.repeat + 1):
            for name in CONTENDERS:
                for records in (plan.small, plan.big):
                    cost = lab.run(name, Workload(records, plan.users), f"{turn}-{records}")
                    costs[name][records].append(cost)
                    console.print(f"{name} treated {records:,} fixes in {cost.wall_s:.1f} s")
    report = Report(plan.small, plan.big, plan.users, costs, memory, machine)
    report.write(folder / REPORT)
    report.show(console)
    console.print(f"All figures are in {folder / REPORT}.", soft_wrap=True)
    return report


def _memory_run(lab: Lab, workload: Workload, jcmd: str) -> MemoryReport:
    collections = Collections(lab.folder, jcmd)
    _, watch = lab.job("traces", workload, "memory", collections.variables(os.environ), collections.ask)
    return memory_report(workload.records, watch, collections.log(watch))


@contextmanager
def _fresh_broker(folder: Path, keep: bool) -> Iterator[KafkaSettings]:
    """Start an empty broker in a folder emptied of the last bench; stop it whatever happens."""
    broker = Broker(folder / "broker")
    if broker.status().running:
        raise UserError(
            f"Another bench uses {folder}: wait for its end, or stop its broker with `wayveil broker stop --data {broker.data}`."
        )
    for old in (broker.data, folder / "runs"):
        shutil.rmtree(old, ignore_errors=True)
    (folder / REPORT).unlink(missing_ok=True)
    (folder / "runs").mkdir(parents=True)
    try:
        yield KafkaSettings(bootstrap=broker.start())
    finally:
        broker.stop()
        if not keep:
            shutil.rmtree(broker.data, ignore_errors=True)
