"""Who acts on a job, where no worker does."""

from __future__ import annotations

import getpass
import os
import socket


def this_actor() -> str:
    """`user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"
