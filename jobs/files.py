"""Files and folders: what `jobs.storage` and `jobs.job_folder` do to them."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from jobs.errors import StorageError


def below(root: Path, relative: str) -> Path:
    """A path that stays below a folder.

    Raises:
        StorageError: it would leave the folder, or leads through a symbolic link.
    """
    path = Path(os.path.normpath(root / relative))
    if not path.is_relative_to(root) or path == root or "\0" in relative:
        raise StorageError(f"{relative!r} is not a path below {root}")
    # The root may be reached through links. Below it, nobody who has a good intent makes one.
    if os.path.realpath(path) != os.path.join(os.path.realpath(root), path.relative_to(root)):
        raise StorageError(
            f"{path} leads through a symbolic link to {os.path.realpath(path)}; pagemill makes no "
            "links in its storage, and follows none: remove it"
        )
    return path


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it; nothing happens if it is gone."""
    if path.is_dir():
        shutil.rmtree(path, onerror=_unless_gone)
    else:
        path.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder, unless it is there, and be sure of its name before it is written to."""
    try:
        path.mkdir()
    except FileExistsError:
        if not path.is_dir():
            raise
    else:
        sync_folder(path.parent)


def discard(temporary: Path) -> None:
    """Remove a file that failed, if it is there and can be removed."""
    # Where the folder itself is the trouble, the error that is on its way says more.
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a file that is replaced at the end or not at all."""
    if path.exists() and not path.is_file():  # /dev/null, a named pipe
        with open(path, "wb") as file:
            yield file
        return
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unless_gone(
    function: Any,
    path: str,
    info: tuple[type[BaseException], BaseException, TracebackType],
) -> None:
    """Another process may remove the same files."""
    if not isinstance(info[1], FileNotFoundError):
        raise info[1]
