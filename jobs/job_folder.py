"""The folder of one job: every file that is shared between processes goes through here.

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
from typing import BinaryIO

from jobs.errors import OutputError, StorageUnavailable
from jobs.files import below, discard, make_folder, remove, sync_folder
from jobs.storage_errors import missing, trouble


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
        return below(self.path, relative)

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
            sync_folder(target.parent)
        except BaseException as error:
            discard(temporary)
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
            sync_folder(target.parent)
            return True
        except OSError as error:
            raise self.trouble("write", target, error) from error
        finally:
            discard(temporary)

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
            sync_folder(new.parent)
        except OSError as error:
            raise self.trouble("write", new, error) from error

    def mark(self, relative: str) -> bool:
        """Make an empty file, unless there is something of that name; False if there is.

        Of several who try at once, be it with `take`, one succeeds, on every file system.
        """
        path = self.at(relative)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            sync_folder(path.parent)
        except FileExistsError:
            return False
        except OSError as error:
            raise self.trouble("write", path, error) from error
        return True

    def take(self, relative: str) -> bool:
        """Put a folder where others would `mark`; False if one of them was first.

        Taking twice is no different from taking once.
        """
        path = self.at(relative)
        try:
            path.mkdir()
            sync_folder(path.parent)
        except FileExistsError:
            return path.is_dir()
        except OSError as error:
            raise self.trouble("write", path, error) from error
        return True

    def read(self, relative: str) -> bytes:
        with self.open(relative) as file:
            return file.read()

    def remove(self, relative: str) -> None:
        """Remove a file or a folder with all that is in it; nothing happens if it is gone."""
        path = self.at(relative)
        try:
            remove(path)
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
            make_folder(each)
