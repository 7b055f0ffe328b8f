"""Last step of the bench: from seconds to steady rates and ratios, as a table and as a file."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import orjson
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from jobs.bench.contenders import CONTENDERS
from jobs.bench.memory import HEAP_MIB, MemoryReport
from jobs.bench.processes import Cost

__all__ = ["BAR", "Machine", "Report"]

BAR = 0.8
"""The traces job is to reach this part of the loop's rate."""
DENSITY_BAR = 0.7
"""The density job is to reach this part of the traces job's rate."""
POLICIES_BAR = 0.8
"""The traces job with policies and anchors is to reach this part of its rate without them."""

Costs = Mapping[str, Mapping[int, Sequence[Cost]]]


@dataclass(frozen=True)
class Machine:
    """Where it was measured, and how busy that was with other things.

    Parameters
    ----------
    cores
        Number of processors.
    load_before
        Processes that wanted to run in the minute before the bench, on average.
    """

    cores: int
    load_before: float


@dataclass(frozen=True)
class Report:
    """What the bench found.

    Parameters
    ----------
    small, big
        The two numbers of fixes, small < big.
    users
        Number of users.
    costs
        For each contender and each of the two sizes: the cost of each run.
    memory
        What the memory run saw, or None if there was none.
    machine
        Where it was measured.
    """

    small: int
    big: int
    users: int
    costs: Costs
    memory: MemoryReport | None
    machine: Machine

    def rate(self, contender: str) -> float | None:
        """Return the steady records per second: what is more in the big run, by the time it takes more, so that start-up cancels.

        Parameters
        ----------
        contender
            One of the contenders.

        Returns
        -------
        float or None
            None where the big run did not take longer: the sizes are too small, or the machine too busy, to tell.
        """
        longer = self._wall_s(contender, self.big) - self._wall_s(contender, self.small)
        return (self.big - self.small) / longer if longer > 0 else None

    def cpu_us(self, contender: str) -> float:
        """Return the microseconds of processors for each record more in the big run, without the broker's.

        Parameters
        ----------
        contender
            One of the contenders.
        """
        small, big = (median(cost.cpu_s for cost in self.costs[contender][size]) for size in (self.small, self.big))
        return (big - small) / (self.big - self.small) * 1e6

    def ratio(self, contender: str, other: str) -> float | None:
        """Return one contender's steady rate by another's, or None where one of the two is not known."""
        mine, theirs = self.rate(contender), self.rate(other)
        return mine / theirs if mine is not None and theirs is not None else None

    def document(self) -> dict[str, Any]:
        """Return everything as the content of the report's file."""
        return {
            "small": self.small,
            "big": self.big,
            "users": self.users,
            "bar": BAR,
            "contenders": {
                name: {
                    "small": [asdict(cost) for cost in self.costs[name][self.small]],
                    "big": [asdict(cost) for cost in self.costs[name][self.big]],
                    "records_per_s": self.rate(name),
                    "cpu_us_per_record": self.cpu_us(name),
                    "ratio_to_loop": self.ratio(name, "loop"),
                    "ratio_to_identity": self.ratio(name, "identity"),
                }
                for name in CONTENDERS
            },
            "memory": asdict(self.memory) if self.memory is not None else None,
            "machine": asdict(self.machine),
        }

    def write(self, path: Path) -> None:
        """Write the report's file.

        Parameters
        ----------
        path
            File to write.
        """
        path.write_bytes(orjson.dumps(self.document(), option=orjson.OPT_INDENT_2))

    def show(self, console: Console) -> None:
        """Print the tables and the verdict.

        Parameters
        ----------
        console
            Where to print.
        """
        title = f"{self.users:,} users, {self.machine.cores} cores, load {self.machine.load_before:.1f} before"
        table = _table(title, "fixes", f"{self.small:,}", f"{self.big:,}", "records/s", "× loop", "× identity", "CPU µs")
        for name in CONTENDERS:
            table.add_row(
                name,
                *(f"{self._wall_s(name, size):.1f} s" for size in (self.small, self.big)),
                _shown(self.rate(name), ",.0f"),
                _shown(self.ratio(name, "loop"), ".2f"),
                _shown(self.ratio(name, "identity"), ".2f"),
                f"{self.cpu_us(name):.1f}",
            )
        console.print(table)
        ratio = self.ratio("traces", "loop")
        if ratio is None:
            console.print("A big run took no longer than a small one: pass sizes further apart.")
        else:
            verdict = "reached" if ratio >= BAR else "missed"
            console.print(f"The traces job runs at {ratio:.2f} × the loop: the bar of {BAR} is {verdict}.")
        for name, what, bar in (
            ("policies", "traces job with policies and anchors", POLICIES_BAR),
            ("density", "density job", DENSITY_BAR),
        ):
            beside = self.ratio(name, "traces")
            if beside is not None:
                verdict = "reached" if beside >= bar else "missed"
                console.print(f"The {what} runs at {beside:.2f} × the traces job: the bar of {bar} is {verdict}.")
        if self.memory is not None:
            console.print(_memory_table(self.memory))

    def _wall_s(self, contender: str, size: int) -> float:
        return median(cost.wall_s for cost in self.costs[contender][size])


def _memory_table(memory: MemoryReport) -> Table:
    title = f"traces job, {memory.records:,} fixes, MiB (heap {HEAP_MIB}, peak {memory.peak_mib:,.0f})"
    table = _table(title, "quarters of the second half", "1st", "2nd", "3rd", "4th", "growth")
    for name, series in (
        ("JVM, resident", memory.jvm_mib),
        ("JVM, live heap", memory.heap_mib),
        ("Python, resident", memory.python_mib),
    ):
        table.add_row(name, *(f"{mib:,.0f}" for mib in series), f"{series[-1] / series[0] - 1:+.1%}")
    return table


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD)
    table.add_column(first)
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def _shown(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
