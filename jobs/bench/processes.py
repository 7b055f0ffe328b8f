"""What a contender's processes take while they run: time on the clock, time of processors, memory."""

import time
from dataclasses import dataclass
from typing import Any

__all__ = ["Cost", "ProcessWatch", "Sample"]

MIB = 2**20
JVM = "java"


@dataclass(frozen=True)
class Cost:
    """Cost of one run.

    Parameters
    ----------
    wall_s
        Seconds on the clock.
    cpu_s
        Seconds of processors, of all its processes and without the broker's: they tell more where other programs are busy too.
    """

    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class Sample:
    """What was seen at one moment.

    Parameters
    ----------
    at_s
        Seconds since the start.
    mib
        Size in MiB.
    """

    at_s: float
    mib: float


class ProcessWatch:
    """Looks at a process and all it started, once in a while; the time on its clock counts from its creation.

    Attributes
    ----------
    jvm, python : list of Sample
        Resident memory of the JVM, and of all other processes.
    jvm_pid : int or None
        Number of the JVM's process, once it was seen.
    """

    def __init__(self) -> None:
        self.jvm: list[Sample] = []
        self.python: list[Sample] = []
        self.jvm_pid: int | None = None
        self._start = time.perf_counter()
        self._cpu_s: dict[int, float] = {}
        self._seen: dict[int, Any] = {}

    def look(self, pid: int) -> None:
        """Note what the processes have taken by now.

        Parameters
        ----------
        pid
            Number of the first of them.
        """
        import psutil

        sizes = {True: 0.0, False: 0.0}
        try:
            root = psutil.Process(pid)
            for process in [root, *root.children(recursive=True)]:
                with process.oneshot():
                    is_jvm, used = process.name() == JVM, process.cpu_times()
                    sizes[is_jvm] += process.memory_info().rss / MIB
                self._seen[process.pid] = process
                self._cpu_s[process.pid] = used.user + used.system
                if is_jvm:
                    self.jvm_pid = process.pid
        except psutil.Error:
            return  # one ended meanwhile: the sums would lack it
        now = self.elapsed_s()
        self.jvm.append(Sample(now, sizes[True]))
        self.python.append(Sample(now, sizes[False]))

    def elapsed_s(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self._start

    def cost(self) -> Cost:
        """Return the cost up to now; processors' time up to the last look at each process."""
        return Cost(self.elapsed_s(), sum(self._cpu_s.values()))

    def await_all(self, timeout_s: float) -> None:
        """Wait until every process that was seen has ended: a JVM outlives the program that started it.

        Parameters
        ----------
        timeout_s
            Seconds to wait at most.
        """
        import psutil

        psutil.wait_procs(list(self._seen.values()), timeout=timeout_s)
