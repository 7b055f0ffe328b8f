"""Step before a local run on a cluster: a standalone Flink cluster of this machine, started from the installed distribution."""

import fcntl
import importlib.util
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from jobs.errors import UserError
from jobs.preflight import java_program
from jobs.processes import HOST, Process, free_port, is_free
from jobs.rest import overview

__all__ = ["DEFAULT_DATA", "Cluster", "ClusterStatus"]

DEFAULT_DATA = Path(".wayveil/cluster")
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 15.0
POLL_S = 0.1
JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
JOB_MANAGER_HEAP = "512m"
# The framework's and the tasks' heap together, as the configuration divides it.
TASK_MANAGER_HEAP = "768m"
OPENED = re.compile(r"^\s+all: (\S.*)$", re.MULTILINE)
"""The modules that Java 17 has to open for Flink, as the shipped configuration lists them."""

# Paths are relative to the data folder, which is the working folder of the processes: it may have any name, and may be moved.
CONFIGURATION = """\
env.java.opts.all: {opened}
jobmanager.rpc.address: {host}
jobmanager.rpc.port: {rpc_port}
jobmanager.bind-host: {host}
jobmanager.execution.failover-strategy: region
rest.address: {host}
rest.bind-address: {host}
rest.port: {rest_port}
taskmanager.host: {host}
taskmanager.bind-host: {host}
taskmanager.numberOfTaskSlots: {slots}
taskmanager.cpu.cores: {slots}
# The distribution's scripts would work these out of one number; they are what the process is started with.
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.framework.off-heap.size: 128m
taskmanager.memory.task.heap.size: 640m
taskmanager.memory.task.off-heap.size: 0
taskmanager.memory.managed.size: 256m
taskmanager.memory.network.min: 128m
taskmanager.memory.network.max: 128m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.memory.jvm-overhead.min: 192m
taskmanager.memory.jvm-overhead.max: 192m
# A process that is gone is noticed within seconds.
heartbeat.interval: 2 s
heartbeat.timeout: 10 s
cluster.registration.error-delay: 500 ms
io.tmp.dirs: tmp
"""


@dataclass(frozen=True)
class ClusterStatus:
    """What is known about the cluster of a data folder.

    Attributes
    ----------
    address : str or None
        Its REST address, while the job manager lives.
    job_manager : int or None
        Number of the job manager's process, while it lives.
    task_managers : tuple of int
        Numbers of the task managers' processes that live, oldest first.
    """

    address: str | None = None
    job_manager: int | None = None
    task_managers: tuple[int, ...] = ()

    @property
    def running(self) -> bool:
        """Whether any process of it lives."""
        return self.job_manager is not None or bool(self.task_managers)


@dataclass(frozen=True)
class _Record:
    """Content of the file ``cluster.json``: which processes were started, and where the job manager listens."""

    rest_port: int
    rpc_port: int
    job_manager: Process | None = None
    task_managers: tuple[Process, ...] = ()
    task_managers_ever: int = 0


class Cluster:
    """A cluster of processes on this machine whose whole state is one folder.

    It is for one machine and for tests: a job manager that dies takes its jobs with it, and they go on from their checkpoints with
    ``--resume`` once it has been started again.

    Parameters
    ----------
    data : Path
        Folder for logs, configuration and the file that names the processes; created when missing.
    """

    def __init__(self, data: Path = DEFAULT_DATA) -> None:
        self.data = data.resolve()
        self.log_folder = self.data / "log"
        self._record_file = self.data / "cluster.json"
        self._children: list[subprocess.Popen[bytes]] = []

    def start(self, task_managers: int = 2, slots: int = 2, port: int | None = None) -> str:
        """Start the processes and wait until all task managers have come.

        Parameters
        ----------
        task_managers : int
            How many task managers.
        slots : int
            How many parallel steps each of them takes.
        port : int, optional
            Port of the REST interface. By default the one used last in this folder if it is free, else any free one.

        Returns
        -------
        str
            REST address, ``host:port``.

        Raises
        ------
        UserError
            If it runs already, the port is taken, Java is missing, or it does not come up.
        """
        java_program()
        self.data.mkdir(parents=True, exist_ok=True)
        with self._start_lock():
            if self.status().running:
                raise UserError("A cluster of this folder runs already: use it, or stop it with `wayveil cluster stop`.")
            shutil.rmtree(self.data / "tmp", ignore_errors=True)  # what killed processes left behind
            for folder in (self.data / "conf", self.data / "tmp", self.log_folder):
                folder.mkdir(exist_ok=True)
            if port is not None and not is_free(port):
                raise UserError(f"Port {port} is taken: choose another with --port, or leave --port away.")
            last = self._read_record()
            rest_port = port or free_port(last.rest_port if last else None)
            rpc_port = free_port(last.rpc_port if last else None, but_not=rest_port)
            opened = OPENED.search((_distribution() / "conf" / "config.yaml").read_text())
            if opened is None:
                raise UserError("The installed Flink distribution has another configuration than expected: run `make setup`.")
            text = CONFIGURATION.format(opened=opened[1], host=HOST, rpc_port=rpc_port, rest_port=rest_port, slots=slots)
            (self.data / "conf" / "config.yaml").write_text(text)
            self._write_record(_Record(rest_port, rpc_port))
            self.start_job_manager()
            for _ in range(task_managers):
                self.start_task_manager()
            self.wait_for(task_managers)
        return f"{HOST}:{rest_port}"

    def start_job_manager(self) -> int:
        """Start the job manager where it listened before, without waiting for it; return the number of its process.

        Task managers that live come to it by themselves; jobs do not.
        """
        record = self._require_record()
        process = self._spawn(JOB_MANAGER, "job-manager", JOB_MANAGER_HEAP)
        self._write_record(replace(record, job_manager=process))
        return process.pid

    def start_task_manager(self) -> int:
        """Start one more task manager, without waiting for it; return the number of its process."""
        record = self._require_record()
        number = record.task_managers_ever + 1
        process = self._spawn(TASK_MANAGER, f"task-manager-{number}", TASK_MANAGER_HEAP)
        living = tuple(one for one in record.task_managers if one.runs(*self._words))
        self._write_record(replace(record, task_managers=(*living, process), task_managers_ever=number))
        return process.pid

    def wait_for(self, task_managers: int) -> None:
        """Wait until the job manager answers and has at least so many task managers.

        Raises
        ------
        UserError
            If a process that was started here ends meanwhile, or it takes too long.
        """
        address = f"{HOST}:{self._require_record().rest_port}"
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            found = overview(address)
            if found is not None and found.get("taskmanagers", 0) >= task_managers:
                return
            status = self.status()
            if status.job_manager is None or len(status.task_managers) < task_managers:
                self.stop()
                raise UserError(f"A process of the cluster ended while starting: the reason is in {self.log_folder}.")
            time.sleep(POLL_S)
        self.stop()
        raise UserError(f"The cluster did not come up within {START_TIMEOUT_S:.0f} seconds: the reason may be in {self.log_folder}.")

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Ask all processes to end, wait for them, and kill what is left when the time is up.

        Parameters
        ----------
        timeout_s : float
            Seconds to wait for the orderly end of each.

        Returns
        -------
        bool
            Whether one had to be killed; also false if none was running.
        """
        record = self._read_record()
        if record is None:
            return False
        killed = False
        for process in (*record.task_managers, *([record.job_manager] if record.job_manager else ())):
            if not process.end(signal.SIGTERM, timeout_s, *self._words):
                killed = True
                process.end(signal.SIGKILL, timeout_s, *self._words)
        self._reap()
        return killed

    def status(self) -> ClusterStatus:
        """Tell which processes of this folder's cluster live.

        Returns
        -------
        ClusterStatus
            Processes that have ended, or whose number another process has now, are not in it.
        """
        self._reap()
        record = self._read_record()
        if record is None:
            return ClusterStatus()
        manager = record.job_manager if record.job_manager and record.job_manager.runs(*self._words) else None
        workers = tuple(one.pid for one in record.task_managers if one.runs(*self._words))
        return ClusterStatus(f"{HOST}:{record.rest_port}" if manager else None, manager.pid if manager else None, workers)

    @property
    def _words(self) -> tuple[str, ...]:
        return (f"-Dwayveil.data={self.data}",)

    def _spawn(self, program: str, name: str, heap: str) -> Process:
        distribution = _distribution()
        opened = OPENED.search((distribution / "conf" / "config.yaml").read_text())
        # As the distribution's own scripts order it: the runtime comes last.
        jars = sorted((distribution / "lib").glob("*.jar"), key=lambda jar: (jar.name.startswith("flink-dist"), jar.name))
        with (self.log_folder / f"{name}.out").open("ab") as out:
            child = subprocess.Popen(
                [
                    java_program(),
                    f"-Xmx{heap}",
                    "-XX:+UseG1GC",
                    "-XX:+ExitOnOutOfMemoryError",
                    *(opened[1].split() if opened else ()),
                    f"-Dlog.file=log/{name}.log",
                    f"-Dlog4j.configurationFile={(distribution / 'conf' / 'log4j.properties').as_uri()}",
                    *self._words,
                    "-cp",
                    ":".join(map(str, jars)),
                    program,
                    "--configDir",
                    "conf",
                ],
                cwd=self.data,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,  # Ctrl-C in the terminal that started it must not end it
            )
        self._children.append(child)
        return Process.of(child.pid)

    def _reap(self) -> None:
        """Forget children that are dead: they stay in the table of processes until their parent asks."""
        self._children = [child for child in self._children if child.poll() is None]

    def _require_record(self) -> _Record:
        record = self._read_record()
        if record is None:
            raise UserError(f"There is no cluster in {self.data}: start one with `wayveil cluster start`.")
        return record

    def _read_record(self) -> _Record | None:
        try:
            content = json.loads(self._record_file.read_text())
            manager = content["job_manager"] and Process(**content["job_manager"])
            return _Record(**content | {"job_manager": manager, "task_managers": tuple(Process(**one) for one in content["task_managers"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def _write_record(self, record: _Record) -> None:
        draft = self._record_file.with_suffix(".tmp")
        draft.write_text(json.dumps(asdict(record)))
        draft.replace(self._record_file)

    @contextmanager
    def _start_lock(self) -> Iterator[None]:
        with (self.data / "start.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError("Another start of this cluster is under way: wait for it, then run `wayveil cluster status`.") from None
            yield


def _distribution() -> Path:
    """Return the folder of the installed Flink."""
    found = importlib.util.find_spec("pyflink")
    if found is None or not found.submodule_search_locations:
        raise UserError(f"Flink is not installed for {sys.executable}: run `make setup`.")
    return Path(found.submodule_search_locations[0])
