"""Seeing that nobody writes to a file while it is read: its rows would be of two versions."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from jobs.errors import InputChanged, InputError

# Nanoseconds: a server may cut the time of a file that was written before, after it was asked for
# once; none of these is a write. FAT has times of two seconds.
_UNITS = (100, 1_000, 1_000_000, 1_000_000_000, 2_000_000_000)


@dataclass(frozen=True, slots=True)
class Stamp:
    """What changes when a file is written, or another one takes its place."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp | None:
        """None of what is no file: a pipe or a device has no size that would tell."""
        if not stat.S_ISREG(found.st_mode):
            return None
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    def fits(self, other: Stamp | None) -> bool:
        """Whether it is the same file, and was not written in between."""
        if other is None:
            return False
        same = (self.device, self.inode, self.size) == (other.device, other.inode, other.size)
        return same and _same_time(self.mtime_ns, other.mtime_ns)


def _same_time(one: int, other: int) -> bool:
    early, late = sorted((one, other))
    return early == late or any(late - late % unit == early for unit in _UNITS)


def unchanged(name: str, descriptor: int) -> AbstractContextManager[None]:
    """See that an open file stays as it is until it has been read.

    Another file may get its name meanwhile, or nobody: the open one is read to its end.

    Raises:
        InputChanged: it was written; also in place of an error that this made of its content.
    """
    return _watched([name], lambda _: Stamp.of(os.fstat(descriptor)))


def paths_unchanged(paths: Sequence[str]) -> AbstractContextManager[None]:
    """See that files stay as they are, and keep their names: they are opened more than once.

    Raises:
        InputChanged: see `unchanged`.
    """
    return _watched(paths, _stamp_of_path)


def _stamp_of_path(path: str) -> Stamp | None:
    try:
        return Stamp.of(os.stat(path))
    except OSError:  # whoever opens it says what is wrong
        return None


@contextmanager
def _watched(names: Sequence[str], stamp: Callable[[str], Stamp | None]) -> Iterator[None]:
    before = [stamp(name) for name in names]

    def check(cause: InputError | None = None) -> None:
        for name, first in zip(names, before, strict=True):
            if first is not None and not first.fits(stamp(name)):
                raise InputChanged(
                    f"{name} was written or replaced while it was read, so its rows may be of two "
                    "versions; try again once nobody writes to it, or give a copy of it"
                ) from cause

    try:
        yield
    except InputChanged:
        raise
    except InputError as error:
        check(error)
        raise
    check()
