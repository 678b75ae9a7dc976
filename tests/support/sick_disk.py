"""A storage whose disk is full, read-only or away for a while, as it really happens.

Where file systems may be mounted (as root), it is a small tmpfs: the kernel refuses. Elsewhere
every process of the test is told by `sitecustomize` to refuse in the place where all files of
the storage are flushed, as long as a certain file is there.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SIZE = 4 << 20
KINDS = {"full": errno.ENOSPC, "read-only": errno.EROFS}


@functools.cache
def can_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, check=False
        )
        if mounted.returncode:
            return False
        subprocess.run(["umount", folder], check=True)
        return True


def ways() -> tuple[str, ...]:
    """How disks can be made sick here."""
    return ("mounted", "told") if can_mount() else ("told",)


class SickDisk:
    """The disk under a folder.

    Attributes:
        env: what processes have to be started with.
    """

    def __init__(self, folder: Path, way: str) -> None:
        self.folder = folder
        self.env: dict[str, str] = {}
        self._mounted = way == "mounted"
        self._side = folder.with_name(f"{folder.name}-side")
        self._refuse = self._side / "refuse"
        self._filler = folder / "filler"

    @contextlib.contextmanager
    def prepared(self) -> Iterator[SickDisk]:
        self.folder.mkdir(parents=True)
        if not self._mounted:
            self._side.mkdir()
            code = _REFUSING.format(file=os.fspath(self._refuse))
            (self._side / "sitecustomize.py").write_text(code)
            self.env = {"PYTHONPATH": os.fspath(self._side)}
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "fsync", os.fsync)  # put back what the next line replaces
                exec(code, {})  # this process is one of them
                yield self
            return
        self._mount("-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs")
        try:
            yield self
        finally:
            subprocess.run(["umount", "--lazy", self.folder], check=True)

    @contextlib.contextmanager
    def sick(self, kind: str) -> Iterator[None]:
        """Full or read-only during the block."""
        self.fall_ill(kind)
        try:
            yield
        finally:
            self.recover(kind)

    def fall_ill(self, kind: str) -> None:
        if not self._mounted:
            self._refuse.write_text(str(KINDS[kind]))
        elif kind == "full":
            with contextlib.suppress(OSError), open(self._filler, "wb", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass
        else:
            self._remount("ro")

    def recover(self, kind: str) -> None:
        if not self._mounted:
            self._refuse.unlink()
        elif kind == "full":
            self._filler.unlink()
        else:
            self._remount("rw")

    def _remount(self, how: str) -> None:
        deadline = time.monotonic() + 60
        while True:  # not while a file is open for writing
            try:
                return self._mount("-o", f"remount,{how}")
            except subprocess.CalledProcessError:
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def _mount(self, *options: str) -> None:
        subprocess.run(["mount", *options, self.folder], check=True, capture_output=True)


_REFUSING = """\
import os
_fsync = os.fsync
def fsync(descriptor):
    try:
        with open({file!r}) as told:
            number = int(told.read() or 0)
    except FileNotFoundError:
        return _fsync(descriptor)
    raise OSError(number, os.strerror(number))
os.fsync = fsync
"""
