"""Step before a local run: programs that outlive the command which starts them, named by number and start time, and ports for them."""

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HOST", "Process", "free_port", "is_free"]

HOST = "127.0.0.1"
POLL_S = 0.1


@dataclass(frozen=True)
class Process:
    """One process: its number, and the time it started in the unit of the system, since numbers are given again."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> "Process":
        """Return the process that has a number now."""
        return cls(pid, _start_of(pid))

    def runs(self, *words: str) -> bool:
        """Tell whether it still lives and its command line holds all of these words."""
        found = _command_line(self.pid)
        return all(word in found for word in words) and self.started == _start_of(self.pid) != ""

    def end(self, number: signal.Signals, timeout_s: float, *words: str) -> bool:
        """Send it a signal and tell whether it ended in time; a child that is dead still has to be waited for by its parent."""
        if not self.runs(*words):
            return True
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not self.runs(*words):
                return True
            time.sleep(POLL_S)
        return False


def is_free(port: int) -> bool:
    """Tell whether a port of this machine can be listened on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
        return True


def free_port(wish: int | None, but_not: int | None = None) -> int:
    """Return a free port: the one wished for, if it is free."""
    if wish is not None and wish != but_not and is_free(wish):
        return wish
    while True:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = int(probe.getsockname()[1])
        if port != but_not:
            return port


def _command_line(pid: int) -> list[str]:
    """Give the words of a process's command line; none if it is gone or dead."""
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return []
    return _ps(pid, "command").split()


def _start_of(pid: int) -> str:
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        except (OSError, IndexError):
            return ""
    return _ps(pid, "lstart").strip()


def _ps(pid: int, column: str) -> str:
    return subprocess.run(["ps", "-p", str(pid), "-o", f"{column}="], capture_output=True, text=True, check=False).stdout
