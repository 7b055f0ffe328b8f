"""What the programs ask of a Flink cluster's REST address, around the jobs: whether it is there, which jobs run, and to cancel one."""

import json
import time
import urllib.error
import urllib.request
from typing import Any

from jobs.errors import UserError

__all__ = ["cancel", "overview", "require_cluster", "running_jobs"]

TIMEOUT_S = 5.0
CANCEL_TIMEOUT_S = 60.0
POLL_S = 0.2
ENDED = {"FINISHED", "CANCELED", "FAILED"}


def overview(address: str) -> dict[str, Any] | None:
    """Return what a cluster says of itself (task managers, slots, jobs), or None if none answers."""
    try:
        return _ask(address, "/overview")
    except (OSError, ValueError):
        return None


def require_cluster(address: str) -> None:
    """Check that a Flink cluster answers at an address and has room for a job.

    Raises
    ------
    UserError
        If the address is malformed, nothing answers, or there is no task manager.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"`{address}` is no address of a cluster: write host:port of its REST interface, for instance 127.0.0.1:8081.")
    found = overview(address)
    if found is None:
        raise UserError(f"No Flink cluster answers at {address}: start one with `wayveil cluster start`, or correct --cluster.")
    if not found.get("taskmanagers"):
        raise UserError(f"The Flink cluster at {address} has no task manager: start one, then run the command again.")


def running_jobs(address: str) -> dict[str, str]:
    """Return the names of the jobs that have not ended, each with its number."""
    return {job["name"]: job["jid"] for job in _ask(address, "/jobs/overview")["jobs"] if job["state"] not in ENDED}


def cancel(address: str, number: str) -> None:
    """Cancel a job and wait until it is gone; its checkpoints stay.

    Raises
    ------
    UserError
        If it does not end in time.
    """
    _ask(address, f"/jobs/{number}?mode=cancel", method="PATCH")
    deadline = time.monotonic() + CANCEL_TIMEOUT_S
    while number in running_jobs(address).values():
        if time.monotonic() > deadline:
            raise UserError(f"The cluster at {address} does not end the job {number}: cancel it there, then run the command again.")
        time.sleep(POLL_S)


def _ask(address: str, path: str, method: str = "GET") -> dict[str, Any]:
    request = urllib.request.Request(f"http://{address}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        raise OSError(f"{address} answers {error.code}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{address} is no Flink cluster")
    return found
