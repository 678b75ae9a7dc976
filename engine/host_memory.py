"""How much memory a control group still allows this process."""

from __future__ import annotations

from pathlib import Path


def cgroup_headroom(root: Path) -> int | None:
    """Bytes until the tightest limit of this process's control groups.

    Looks at version 2 and version 1 of Linux's memory controller, at the process's group and
    all groups above it. Cached files count as free: the kernel drops them first.

    Args:
        root: the file system's root, for `/proc` and `/sys`.

    Returns:
        None where there is no limit (or no control groups).
    """
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    headrooms = []
    for line in groups:
        _, controllers, name = line.split(":", 2)
        if not controllers:
            top = root / "sys/fs/cgroup"
            files = ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            top = root / "sys/fs/cgroup/memory"
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        # Inside a container the group's own folder may be mounted as the top.
        group = top / name.strip("/")
        for folder in _upward(group, top):
            headroom = _headroom(folder, *files)
            if headroom is not None:
                headrooms.append(headroom)
    return min(headrooms, default=None)


def _upward(group: Path, top: Path) -> list[Path]:
    """The group's folder and those above it, up to the top."""
    folders = [group]
    while folders[-1] != top:
        folders.append(folders[-1].parent)
    return folders


def _headroom(folder: Path, limit_file: str, usage_file: str, cached_key: str) -> int | None:
    try:
        limit = int((folder / limit_file).read_text())  # "max" is no integer: no limit
        usage = int((folder / usage_file).read_text())
        stat = (folder / "memory.stat").read_text().split()
    except (OSError, ValueError):
        return None
    cached = int(dict(zip(stat[::2], stat[1::2], strict=False)).get(cached_key, 0))
    return max(0, limit - usage + cached)
