"""Step before a local run: a one-node Kafka broker in KRaft mode, started from the jars of `make setup`."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from jobs.errors import UserError
from jobs.preflight import jars_folder, java_program, require_jars
from streaming.settings import KafkaSettings

__all__ = ["DEFAULT_DATA", "Broker", "BrokerStatus"]

DEFAULT_DATA = Path(".wayveil/broker")
HOST = "127.0.0.1"
HEAP = "512m"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.1

# Paths are relative to the data folder, which is the working folder of the process: it may have any name, and may be moved.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers={host}:{controller_port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=INTERNAL
listeners=CLIENT://{host}:{port},INTERNAL://{host}:{internal_port},CONTROLLER://{host}:{controller_port}
advertised.listeners=CLIENT://{host}:{port},INTERNAL://{host}:{internal_port},CONTROLLER://{host}:{controller_port}
listener.security.protocol.map=CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=log
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
transaction.max.timeout.ms=3600000
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.message.timestamp.type=LogAppendTime
"""


@dataclass(frozen=True)
class BrokerStatus:
    """What is known about the broker of a data folder.

    Attributes
    ----------
    running : bool
        Whether its process lives.
    bootstrap : str or None
        Address for clients, while it runs.
    internal : str or None
        Address for the broker itself and for who administers it, while it runs.
    pid : int or None
        Number of its process, while it runs.
    """

    running: bool
    bootstrap: str | None = None
    internal: str | None = None
    pid: int | None = None


@dataclass(frozen=True)
class _Record:
    """Content of the file ``broker.json``: which process was started, and where it listens."""

    pid: int
    started: str
    port: int
    internal_port: int
    controller_port: int


class Broker:
    """A one-node broker whose whole state is one folder.

    Parameters
    ----------
    data : Path
        Folder for its log, settings and the file that names its process; created when missing.
    """

    def __init__(self, data: Path = DEFAULT_DATA) -> None:
        self.data = data.resolve()
        self.log_file = self.data / "broker.log"
        self._record_file = self.data / "broker.json"
        self._properties_file = self.data / "server.properties"
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, port: int | None = None, security: Path | None = None) -> str:
        """Start the broker and wait until it answers.

        Parameters
        ----------
        port : int, optional
            Port to listen on. By default the one used last in this folder if it is free, else any free one.
        security : Path, optional
            Properties that secure the listeners CLIENT, INTERNAL and CONTROLLER (see ``deploy/kafka``); by default all are open to whoever
            works on this machine.

        Returns
        -------
        str
            Bootstrap address, ``host:port``.

        Raises
        ------
        UserError
            If it runs already, the port is taken, Java, jars or the properties are missing, or it does not come up.
        """
        java = java_program()
        require_jars("broker", "kafka_", "kafka-tools-", "slf4j-simple-")
        secured = _read(security) if security else ""
        self.data.mkdir(parents=True, exist_ok=True)
        with self._start_lock():
            status = self.status()
            if status.running:
                raise UserError(f"A broker runs already at {status.bootstrap}: use it, or stop it with `wayveil broker stop`.")
            last = self._read_record()
            if port is not None and not _is_free(port):
                raise UserError(f"Port {port} is taken: choose another with --port, or leave --port away.")
            chosen = port or _free_port(last.port if last else None)
            internal_port = _free_port(last.internal_port if last else None, chosen)
            controller_port = _free_port(last.controller_port if last else None, chosen, internal_port)
            properties = PROPERTIES.format(host=HOST, port=chosen, internal_port=internal_port, controller_port=controller_port)
            self._properties_file.write_text(properties + secured)
            if not (self.data / "log" / "meta.properties").exists():
                self._format(java)
            child = self._spawn(java)
            self._child = child
            self._write_record(_Record(child.pid, _process_start(child.pid), chosen, internal_port, controller_port))
            self._wait_until_ready(child, chosen, secured=bool(secured))
        return f"{HOST}:{chosen}"

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Ask the broker to end, wait for it, and kill it only when the time is up.

        Parameters
        ----------
        timeout_s : float
            Seconds to wait for an orderly end.

        Returns
        -------
        bool
            Whether it had to be killed; also false if none was running.
        """
        record = self._live_record()
        if record is None:
            return False
        killed = not self._end(record, signal.SIGTERM, timeout_s)
        if killed:
            self._end(record, signal.SIGKILL, timeout_s)
        return killed

    def status(self) -> BrokerStatus:
        """Tell whether the broker of this folder runs.

        Returns
        -------
        BrokerStatus
            A file that a dead process left behind, or whose number another process has now, counts as stopped.
        """
        record = self._live_record()
        if record is None:
            return BrokerStatus(False)
        return BrokerStatus(True, f"{HOST}:{record.port}", f"{HOST}:{record.internal_port}", record.pid)

    def _format(self, java: str) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if cluster.startswith("-"):  # would be read as an option
            cluster = "A" + cluster[1:]
        arguments = ["kafka.tools.StorageTool", "format", "--standalone", "--ignore-formatted", "-t", cluster, "-c", "server.properties"]
        done = subprocess.run(
            [java, "-Xmx256m", "-cp", _class_path(), *arguments], cwd=self.data, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            self.log_file.write_text(done.stdout + done.stderr)
            raise UserError(f"The folder of the broker could not be formatted: the reason is in {self.log_file}.")

    def _spawn(self, java: str) -> subprocess.Popen[bytes]:
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                [
                    java,
                    f"-Xmx{HEAP}",
                    f"-Xms{HEAP}",
                    "-XX:+ExitOnOutOfMemoryError",
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                    "-Dorg.slf4j.simpleLogger.showDateTime=true",
                    f"-Dwayveil.data={self.data}",
                    "-cp",
                    _class_path(),
                    "kafka.Kafka",
                    "server.properties",
                ],
                cwd=self.data,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal that started it must not end it
            )

    def _wait_until_ready(self, child: subprocess.Popen[bytes], port: int, *, secured: bool) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if child.poll() is not None:
                raise UserError(f"The broker ended while starting: the reason is in {self.log_file}.")
            # To those who have no name there it says nothing; it listens as soon as it has what it needs.
            if not _is_free(port) and (secured or _answers(port)):
                return
            time.sleep(POLL_S)
        self.stop()
        raise UserError(f"The broker did not come up within {START_TIMEOUT_S:.0f} seconds: the reason may be in {self.log_file}.")

    def _end(self, record: _Record, number: signal.Signals, timeout_s: float) -> bool:
        with suppress(ProcessLookupError):
            os.kill(record.pid, number)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not self._is_ours(record):
                if self._child is not None and self._child.pid == record.pid:
                    self._child.wait()  # a dead child stays in the table until its parent asks
                return True
            time.sleep(POLL_S)
        return False

    def _live_record(self) -> _Record | None:
        record = self._read_record()
        if self._child is not None:
            self._child.poll()
        return record if record is not None and self._is_ours(record) else None

    def _is_ours(self, record: _Record) -> bool:
        words = _command_line(record.pid)
        return "kafka.Kafka" in words and f"-Dwayveil.data={self.data}" in words and _process_start(record.pid) == record.started

    def _read_record(self) -> _Record | None:
        try:
            return _Record(**json.loads(self._record_file.read_text()))
        except (OSError, ValueError, TypeError):
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
                raise UserError("Another start of this broker is under way: wait for it, then run `wayveil broker status`.") from None
            yield


def _class_path() -> str:
    return str(jars_folder().resolve() / "broker" / "*")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
        return True


def _free_port(wish: int | None, *but_not: int) -> int:
    if wish is not None and wish not in but_not and _is_free(wish):
        return wish
    while True:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = int(probe.getsockname()[1])
        if port not in but_not:
            return port


def _answers(port: int) -> bool:
    from jobs.kafka import is_ready

    return is_ready(KafkaSettings(bootstrap=f"{HOST}:{port}"))


def _read(security: Path) -> str:
    try:
        return security.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The properties {security} cannot be read: pass the path of a text file, for instance of deploy/kafka.") from error


def _command_line(pid: int) -> list[str]:
    """Give the words of a process's command line; none if it is gone or dead."""
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return []
    return _ps(pid, "command").split()


def _process_start(pid: int) -> str:
    """Give the time a process started, in the unit of the system: together with the number it names one process."""
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        except (OSError, IndexError):
            return ""
    return _ps(pid, "lstart").strip()


def _ps(pid: int, column: str) -> str:
    return subprocess.run(["ps", "-p", str(pid), "-o", f"{column}="], capture_output=True, text=True, check=False).stdout
