"""The storage folder: every file that is shared between processes goes through here.

A file is either whole or absent: it is written under a hidden temporary name, flushed to the
disk, renamed, and its folder flushed. Nothing is ever changed in place.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import shutil
import uuid
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from jobs.errors import OutputError, StorageError, StorageUnavailable
from jobs.storage_errors import MARKER, away, is_storage, missing, trouble


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
        return JobFolder(_below(self.root, folder), self.root)

    def check(self) -> None:
        """See that the storage is there.

        Raises:
            StorageUnavailable: it is not; that may pass.
        """
        if not is_storage(self.root):
            raise away(self.root)

    def folders(self) -> list[str]:
        """The names of all folders in it, ours or not; none where it is not there.

        Raises:
            StorageUnavailable: it cannot be read.
        """
        if not is_storage(self.root):
            return []
        try:
            with os.scandir(self.root) as entries:
                return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
        except OSError as error:
            raise trouble("read", self.root, self.root, self.root, error) from error

    def now(self) -> float:
        """The time by the clock that the ages of its files go by (seconds since 1970).

        Raises:
            StorageUnavailable: it cannot be written.
        """
        probe = self.root / f".clock.{uuid.uuid4().hex[:8]}.tmp"
        try:
            probe.touch()
            return probe.stat().st_mtime
        except OSError as error:
            raise trouble("write", probe, self.root, self.root, error) from error
        finally:
            _discard(probe)

    def new_job(self, folder: str, *, in_use: bool = False) -> JobFolder:
        """Make the folder of a job, which is done nowhere else; the first one makes the storage.

        Args:
            in_use: there are jobs, so the storage has to be there: what lies where it has to be
                mounted is another disk, and what is written to that is lost once it is mounted.

        Raises:
            StorageUnavailable: the storage is not there, or cannot be written.
        """
        if in_use:
            self.check()
        job, marker = self.job(folder), self.root / MARKER
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if not marker.exists():
                marker.write_text("The files of pagemill's jobs; see docs/operations.md.\n")
            job.path.mkdir(exist_ok=True)
        except OSError as error:
            raise job.trouble("make", job.path, error) from error
        return job

    def remove(self, relative: str) -> None:
        """Remove a file, or a folder with all that is in it, and be sure that it is gone.

        Raises:
            StorageUnavailable: the storage is not there, and may come back with all that was in
                it; or some of it cannot be removed.
        """
        self.check()
        path = _below(self.root, relative)
        try:
            _remove(path)
        except OSError as error:
            raise trouble("remove", path, path, self.root, error) from error


class JobFolder:
    """One job's files, by the relative paths of `jobs.layout`.

    Nothing here makes the folder itself: where it is missing, the storage is not mounted, and
    what would be written in its place would be out of reach once it is.

    Every method that touches files raises `StorageUnavailable` if the storage is not there, is
    full, or refuses, and `OutputError` if a file is missing though the storage is there.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        self._root = root

    def at(self, relative: str) -> Path:
        """The absolute path of a file of this job.

        Raises:
            StorageError: the path would leave the job's folder.
        """
        return _below(self.path, relative)

    def exists(self, relative: str) -> bool:
        return self.at(relative).exists()

    def size(self, relative: str) -> int:
        path = self.at(relative)
        try:
            return path.stat().st_size
        except OSError as error:
            raise self.trouble("read", path, error) from error

    def files(self, relative: str, pattern: str = "*") -> list[str]:
        """Relative paths of the finished files in a folder, sorted; none if it is missing."""
        names = fnmatch.filter(self.all_files(relative), pattern)
        return [f"{relative}/{name}" for name in names if name[0] != "."]

    def all_files(self, relative: str) -> list[str]:
        """Names of the files in a folder, hidden ones too, sorted; none if it is missing."""
        folder = self.at(relative)
        try:
            if not folder.exists() and not self.path.is_dir():
                raise missing(folder, self.path, self._root)
            return sorted(os.listdir(folder)) if folder.exists() else []
        except OSError as error:
            raise self.trouble("read", folder, error) from error

    def make_folder(self, relative: str) -> Path:
        """See that there is a folder in that of the job; returns its path."""
        folder = self.at(relative)
        try:
            self._make(folder)
        except OSError as error:
            raise self.trouble("make", folder, error) from error
        return folder

    def trouble(self, action: str, path: Path, error: OSError) -> StorageUnavailable | OutputError:
        """The error to raise in place of one of the file system."""
        return trouble(action, path, self.path, self._root, error)

    @contextlib.contextmanager
    def open(self, relative: str) -> Iterator[BufferedReader]:
        """Open a finished file for reading; errors of the block's reads become ours too."""
        path = self.at(relative)
        try:
            with open(path, "rb") as file:
                yield file
        except OSError as error:
            if error.errno is None:  # of pyarrow: the content is damaged
                raise
            raise self.trouble("read", path, error) from error

    @contextlib.contextmanager
    def create(self, relative: str) -> Iterator[BinaryIO]:
        """Write a file that appears whole, and durable, when the block ends without an error.

        An existing file of that name is replaced. After an error nothing is left behind.

        Raises:
            StorageUnavailable: it cannot be written (missing rights, disk full, …).
        """
        target = self.at(relative)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            self._make(target.parent)
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
            _sync_folder(target.parent)
        except BaseException as error:
            _discard(temporary)
            if isinstance(error, OSError) and error.errno is not None:
                raise self.trouble("write", target, error) from error
            raise

    def create_once(self, relative: str, content: bytes) -> bool:
        """Write a small file only if there is none of that name; False if there was one.

        This is how a published version gets its manifest: the first finalizer wins, and one
        that was fenced in the meantime changes nothing.
        """
        target = self.at(relative)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            self._make(target.parent)
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
            raise self.trouble("write", target, error) from error
        finally:
            _discard(temporary)

    def link(self, source: str, target: str) -> None:
        """Give a finished file a second name; does nothing where that name is taken.

        Files are immutable, so sharing one between versions is safe. Where the file system
        has no hard links the file is copied.
        """
        old, new = self.at(source), self.at(target)
        try:
            self._make(new.parent)
            try:
                os.link(old, new)
            except FileExistsError:
                return
            except OSError:
                if new.exists():
                    return
                with self.open(source) as reader, self.create(target) as writer:
                    shutil.copyfileobj(reader, writer, 1 << 20)
            _sync_folder(new.parent)
        except OSError as error:
            raise self.trouble("write", new, error) from error

    def read(self, relative: str) -> bytes:
        with self.open(relative) as file:
            return file.read()

    def remove(self, relative: str) -> None:
        """Remove a file or a folder with all that is in it; nothing happens if it is gone."""
        path = self.at(relative)
        try:
            _remove(path)
        except OSError as error:
            raise self.trouble("remove", path, error) from error

    def entries(self) -> set[str]:
        """The names of what lies in it, hidden files too."""
        return set(os.listdir(self.path))

    def newest(self) -> float:
        """When anything in it was last written (seconds since 1970)."""
        paths = [self.path, *self.path.rglob("*")]
        return max(path.lstat().st_mtime for path in paths)

    def remove_all(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def _make(self, folder: Path) -> None:
        """Make a folder in that of the job, and those between."""
        between = [folder, *folder.parents]
        for each in reversed(between[: between.index(self.path)]):
            each.mkdir(exist_ok=True)


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
    if not path.is_relative_to(root) or path == root or "\0" in relative:
        raise StorageError(f"{relative!r} is not a path below {root}")
    # The root may be reached through links. Below it, nobody who has a good intent makes one.
    if os.path.realpath(path) != os.path.join(os.path.realpath(root), path.relative_to(root)):
        raise StorageError(
            f"{path} leads through a symbolic link to {os.path.realpath(path)}; pagemill makes no "
            "links in its storage, and follows none: remove it"
        )
    return path


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, onerror=_unless_gone)
    else:
        path.unlink(missing_ok=True)


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


def _unless_gone(
    function: Any,
    path: str,
    info: tuple[type[BaseException], BaseException, TracebackType],
) -> None:
    """Another process may remove the same files."""
    if not isinstance(info[1], FileNotFoundError):
        raise info[1]
