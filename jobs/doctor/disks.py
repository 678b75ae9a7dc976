"""What lies under a path: how much room, and on what kind of file system."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from jobs.doctor.findings import Finding, fault, warning

GIB = 1 << 30
LITTLE_ROOM = 5 * GIB  # less is soon full: a model alone takes more
NO_ROOM = GIB // 4
_FEW_FILES = 1000
# SQLite's locks and its shared memory do not work across machines.
_NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "fuse.sshfs", "gpfs", "lustre", "nfs", "nfs4", "smb3"}
)


def existing(path: Path) -> Path:
    """The path itself, or the nearest folder above it that is there."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def room(name: str, path: Path, advice: str) -> tuple[str, Finding | None]:
    """How much room there is under a path, in words; and what is wrong with that, if it is.

    Args:
        name: of the finding.
        advice: how to make room.
    """
    place = existing(path)
    free, facts = shutil.disk_usage(place).free, os.statvfs(place)
    shown = f"{free / GIB:,.1f} GiB free"
    found = f"{shown} on the disk of {path}"
    if free < NO_ROOM:
        return shown, fault(name, f"only {found}", advice)
    if free < LITTLE_ROOM:
        return shown, warning(name, f"only {found}", advice)
    if facts.f_files and facts.f_favail < _FEW_FILES:
        found = f"the disk of {path} takes only {facts.f_favail} more files (inodes)"
        return shown, fault(name, found, advice)
    return shown, None


def network_file_system(path: Path) -> str | None:
    """The kind of the network file system that a path is on; None if it is on none."""
    import psutil

    place = existing(path).resolve()
    mounts = {Path(disk.mountpoint): disk.fstype for disk in psutil.disk_partitions(all=True)}
    kind = next((mounts[folder] for folder in (place, *place.parents) if folder in mounts), "")
    return kind if kind in _NETWORK else None
