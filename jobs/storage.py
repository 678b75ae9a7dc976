"""The storage folder: every file that is shared between processes goes through here.

A file is either whole or absent: it is written under a hidden temporary name, flushed to the
disk, renamed, and its folder flushed. Nothing is ever changed in place.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from jobs.errors import StorageError


class Storage:
    """The root of all job folders, on a file system that every process of a deployment reaches.

    Args:
        url: a path or a `file://` URL.

    Raises:
        StorageError: the URL names something else.
    """

    def __init__(self, url: str) -> None:
        self.root = _local_path(url)

    def job(self, folder: str) -> JobFolder:
        """The folder of one job; `folder` is relative to the root and stays below it."""
        return JobFolder(_below(self.root, folder))


class JobFolder:
    """One job's files, by the relative paths of `jobs.layout`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def at(self, relative: str) -> Path:
        """The absolute path of a file of this job.

        Raises:
            StorageError: the path would leave the job's folder.
        """
        return _below(self.path, relative)

    def exists(self, relative: str) -> bool:
        return self.at(relative).exists()

    def size(self, relative: str) -> int:
        return self.at(relative).stat().st_size

    def files(self, relative: str, pattern: str = "*") -> list[str]:
        """Relative paths of the finished files in a folder, sorted; none if it is missing."""
        folder = self.at(relative)
        return sorted(f"{relative}/{p.name}" for p in folder.glob(pattern) if p.name[0] != ".")

    @contextlib.contextmanager
    def create(self, relative: str) -> Iterator[BinaryIO]:
        """Write a file that appears whole, and durable, when the block ends without an error.

        An existing file of that name is replaced. After an error nothing is left behind.

        Raises:
            StorageError: the folder cannot be written (missing rights, disk full, …).
        """
        target = self.at(relative)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
            _sync_folder(target.parent)
        except OSError as error:
            _discard(temporary)
            raise StorageError(_explain("write", target, error)) from error
        except BaseException:
            _discard(temporary)
            raise

    def create_once(self, relative: str, content: bytes) -> bool:
        """Write a small file only if there is none of that name; False if there was one.

        This is how a published version gets its manifest: the first finalizer wins, and one
        that was fenced in the meantime changes nothing.
        """
        target = self.at(relative)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, target)
            except FileExistsError:
                return False
            except OSError:
                # No hard links here. What is left is a moment in which two writers may meet;
                # the later then replaces equal content.
                if target.exists():
                    return False
                os.replace(temporary, target)
            _sync_folder(target.parent)
            return True
        except OSError as error:
            raise StorageError(_explain("write", target, error)) from error
        finally:
            _discard(temporary)

    def link(self, source: str, target: str) -> None:
        """Give a finished file a second name; does nothing where that name is taken.

        Files are immutable, so sharing one between versions is safe. Where the file system
        has no hard links the file is copied.
        """
        old, new = self.at(source), self.at(target)
        try:
            new.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(old, new)
            except FileExistsError:
                return
            except OSError:
                if new.exists():
                    return
                if not old.exists():
                    raise
                with open(old, "rb") as reader, self.create(target) as writer:
                    shutil.copyfileobj(reader, writer, 1 << 20)
            _sync_folder(new.parent)
        except OSError as error:
            raise StorageError(_explain("publish", new, error)) from error

    def read(self, relative: str) -> bytes:
        path = self.at(relative)
        try:
            return path.read_bytes()
        except OSError as error:
            raise StorageError(_explain("read", path, error)) from error

    def remove(self, relative: str) -> None:
        """Remove a file or a folder with all that is in it; nothing happens if it is gone."""
        path = self.at(relative)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def remove_all(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _local_path(url: str) -> Path:
    parts = urlsplit(url)
    if len(parts.scheme) > 1 and parts.scheme != "file":
        raise StorageError(
            f"PAGEMILL_STORAGE_URL is {parts.scheme}://…, which pagemill cannot write yet; "
            "name a folder, or file:///path, that all workers reach"
        )
    path = Path(unquote(parts.path)) if parts.scheme == "file" else Path(url)
    return path.expanduser().absolute()


def _below(root: Path, relative: str) -> Path:
    path = Path(os.path.normpath(root / relative))
    if not path.is_relative_to(root) or path == root:
        raise StorageError(f"{relative!r} is not a path below {root}")
    return path


def _discard(temporary: Path) -> None:
    # Where the folder itself is the trouble, the error that is on its way says more.
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _explain(action: str, path: Path, error: OSError) -> str:
    reason = error.strerror or str(error)
    return (
        f"cannot {action} {path}: {reason}; see that PAGEMILL_STORAGE_URL names a folder with "
        "room and write permission"
    )
