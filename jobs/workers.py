"""How workers are named in leases."""

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
