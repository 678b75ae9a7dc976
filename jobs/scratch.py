"""Temporary folders that others can tell from those of processes that are dead.

Who is killed by -9 removes nothing. So each folder holds a file that its process has locked, and
the lock ends with the process, whatever ended it: whoever gets the lock knows that nobody uses the
folder. Process ids would not tell that, as those of a container are not those of its host.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "pagemill-scratch-"
_LOCK = ".in-use"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder, removed at the end of the block; those of the dead are removed, too."""
    remove_abandoned()
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        folder = Path(name)
        # It is locked before it has the name by which it is found.
        unnamed = folder / f"{_LOCK}.new"
        lock = os.open(unnamed, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, lock)
        with contextlib.suppress(OSError):  # where there are no locks, it is never found
            fcntl.flock(lock, fcntl.LOCK_EX)
            unnamed.rename(folder / _LOCK)
        yield folder


def abandoned() -> list[Path]:
    """Folders of ours whose processes are dead."""
    return [folder for folder in _ours() if _lock_of_dead(folder, remove=False)]


def remove_abandoned() -> list[Path]:
    """Remove them; returns those that were. What cannot be removed stays."""
    return [folder for folder in _ours() if _lock_of_dead(folder, remove=True)]


def _ours() -> list[Path]:
    """Scratch folders of this user; those of others are theirs."""
    found = []
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if not entry.name.startswith(PREFIX):
                continue
            with contextlib.suppress(OSError):
                about = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid():
                    found.append(Path(entry.path))
    return sorted(found)


def _lock_of_dead(folder: Path, *, remove: bool) -> bool:
    """Whether nobody uses a folder, which is then removed if that is wanted."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # it is being made, or removed
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # somebody has it
        return False
    else:
        if remove:
            shutil.rmtree(folder, ignore_errors=True)
            return not folder.exists()
        return True
    finally:
        os.close(lock)
