"""What the traces job holds in memory while it runs: the processes as the system sees them, and the JVM's heap without its garbage."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from jobs.bench.processes import ProcessWatch, Sample
from jobs.errors import UserError
from jobs.preflight import java_program

__all__ = ["HEAP_MIB", "Collections", "MemoryReport", "jcmd_program", "live_heap", "memory_report", "quarters"]

HEAP_MIB = 512
COLLECT_EVERY_S = 5.0
PARTS = 4
COLLECTION = re.compile(r"\[(\d+\.\d+)s\].*\bPause Full \(Diagnostic Command\) \d+M->(\d+)M\(\d+M\)")


@dataclass(frozen=True)
class MemoryReport:
    """Medians over the four quarters of the second half of a run, in MiB; the first half counts as warm-up.

    A JVM leaves garbage lying while it may take more memory, so its heap has a fixed size here, as in a cluster. What the job needs of
    it is what a full collection leaves; the bench asks for one every few seconds.

    Parameters
    ----------
    records
        Number of fixes that went in.
    jvm_mib, python_mib
        Resident memory of the JVM, and of the Python workers and the program that submits the job.
    heap_mib
        What full collections left of the JVM's heap.
    peak_mib
        Highest sum of the processes' resident memory in the whole run.
    """

    records: int
    jvm_mib: tuple[float, ...]
    python_mib: tuple[float, ...]
    heap_mib: tuple[float, ...]
    peak_mib: float


class Collections:
    """Makes a JVM collect now and then, and log it.

    Parameters
    ----------
    folder
        Existing folder for the log.
    jcmd
        The program `jcmd`.
    """

    def __init__(self, folder: Path, jcmd: str) -> None:
        self._folder, self._jcmd = folder.resolve(), jcmd
        self._last_s = 0.0

    def variables(self, present: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variable that fixes a JVM's heap and makes it log its collections.

        Parameters
        ----------
        present
            The environment that it is added to.
        """
        added = f'-Xms{HEAP_MIB}m -Xmx{HEAP_MIB}m "-Xlog:gc:file={self._folder / "gc-%p.log"}"'
        return {"JDK_JAVA_OPTIONS": f"{present.get('JDK_JAVA_OPTIONS', '')} {added}".strip()}

    def ask(self, watch: ProcessWatch) -> None:
        """Ask for a collection if the last one is some seconds ago.

        Parameters
        ----------
        watch
            Knows the JVM's process.
        """
        if watch.jvm_pid is not None and watch.elapsed_s() - self._last_s >= COLLECT_EVERY_S:
            self._last_s = watch.elapsed_s()
            subprocess.run([self._jcmd, str(watch.jvm_pid), "GC.run"], capture_output=True, check=False)

    def log(self, watch: ProcessWatch) -> list[str]:
        """Return the log's lines.

        Parameters
        ----------
        watch
            Knows the JVM's process.
        """
        log = self._folder / f"gc-{watch.jvm_pid}.log"
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def jcmd_program() -> str:
    """Find the program `jcmd` of the JDK that jobs run with.

    Raises
    ------
    UserError
        If there is none.
    """
    program = shutil.which(str(Path(java_program()).resolve().parent / "jcmd")) or shutil.which("jcmd")
    if program is None:
        raise UserError("The memory run needs `jcmd`: install a whole JDK 17, or pass --memory 0.")
    return program


def memory_report(records: int, watch: ProcessWatch, log: Iterable[str]) -> MemoryReport:
    """Sum up what was seen in a run.

    Parameters
    ----------
    records
        Number of fixes that went in.
    watch
        Has looked at the run's processes.
    log
        Lines of the JVM's log.

    Raises
    ------
    UserError
        If the run was too short to tell.
    """
    end_s = watch.jvm[-1].at_s if watch.jvm else 0.0
    return MemoryReport(
        records,
        quarters(watch.jvm, end_s),
        quarters(watch.python, end_s),
        quarters(live_heap(log), end_s),
        max(jvm.mib + python.mib for jvm, python in zip(watch.jvm, watch.python, strict=True)),
    )


def live_heap(log: Iterable[str]) -> list[Sample]:
    """Read what each collection that was asked for left of the heap.

    Parameters
    ----------
    log
        Lines that ``-Xlog:gc`` writes.
    """
    return [Sample(float(found[1]), float(found[2])) for line in log if (found := COLLECTION.search(line))]


def quarters(samples: Iterable[Sample], end_s: float) -> tuple[float, ...]:
    """Return the medians over the four quarters of the second half of a run.

    Parameters
    ----------
    samples
        What was seen in the whole run.
    end_s
        End of the run in seconds since the start of the samples' clock.

    Raises
    ------
    UserError
        If nothing was seen in one of them.
    """
    parts: list[list[float]] = [[] for _ in range(PARTS)]
    for sample in samples:
        part = int((2 * sample.at_s / end_s - 1) * PARTS) if end_s > 0 and sample.at_s * 2 >= end_s else -1
        if 0 <= part <= PARTS:
            parts[min(part, PARTS - 1)].append(sample.mib)
    if not all(parts):
        raise UserError("The memory run was too short to see anything in each quarter of its second half: pass a larger --memory, or 0.")
    return tuple(median(part) for part in parts)
