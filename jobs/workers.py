"""How workers are named, in leases and in the table of workers."""

from __future__ import annotations

import os
import socket
import uuid


def worker_id() -> str:
    """The id of this process as a worker: `host:pid:random`, never the same again."""
    return f"{worker_id_prefix(os.getpid())}{uuid.uuid4().hex[:8]}"


def worker_id_prefix(pid: int) -> str:
    """How the id of a worker with that process id, on this host, begins."""
    return f"{socket.gethostname()}:{pid}:"


def host_and_pid(worker_id: str) -> tuple[str, int]:
    """Where a worker runs, by its id.

    Raises:
        ValueError: the id is of another shape.
    """
    parts = worker_id.rsplit(":", 2)
    if len(parts) != 3 or not parts[0] or not parts[1].isdecimal():
        raise ValueError(f"the worker id {worker_id!r} is not `host:pid:random`")
    return parts[0], int(parts[1])
