"""Finding the input: a path, a URI, or stdin, as files that can be opened."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import pyarrow as pa
from pyarrow import fs

from jobs.errors import InputError
from jobs.reading.unchanged import paths_unchanged, unchanged
from jobs.shown_urls import scrubbed, shown_input

STDIN = "-"
PARQUET_SUFFIXES = (".parquet", ".pq")


@dataclass(frozen=True, slots=True)
class Source:
    """Where the input lies.

    Attributes:
        name: what messages call it; no password in it.
        paths: its files, within `filesystem`; several only for a folder of Parquet files.
        size: bytes of all files, as stored; None where that is not known (stdin, a pipe).
        filesystem: None for stdin.
    """

    name: str
    paths: tuple[str, ...] = ()
    size: int | None = None
    is_folder: bool = False
    filesystem: fs.FileSystem | None = None

    @contextmanager
    def stream(self) -> Iterator[BinaryIO]:
        """The bytes of a source that is one file, from the start to the end."""
        if self.filesystem is None:
            with _watched(self.name, sys.stdin.buffer):
                yield sys.stdin.buffer  # not ours to close
            return
        with reading(self.name, self.paths[0]):
            if isinstance(self.filesystem, fs.LocalFileSystem):
                # A named pipe, too: `pagemill submit <(zcat *.gz)`.
                file = cast(BinaryIO, open(self.paths[0], "rb", buffering=0))  # noqa: SIM115
            else:
                # pyarrow would decompress by the name; here the bytes decide.
                stream = self.filesystem.open_input_stream(self.paths[0], compression=None)
                file = cast(BinaryIO, stream)
        with file, _watched(self.name, file):
            yield file

    def files_unchanged(self) -> AbstractContextManager[None]:
        """See that nobody writes to the files while they are opened, again and again.

        Only of local files is it known: others would be asked for over a network, one by one.

        Raises:
            InputChanged: somebody did.
        """
        local = isinstance(self.filesystem, fs.LocalFileSystem)
        return paths_unchanged(self.paths if local else ())

    def open_at_random(self, path: str) -> Any:
        """A file that can be read at any place, which Parquet needs."""
        assert self.filesystem is not None
        with reading(shown_input(path), path):
            return self.filesystem.open_input_file(path)


def _watched(name: str, file: BinaryIO) -> AbstractContextManager[None]:
    """Sees that nobody writes to a local file; stdin may be one, too."""
    try:
        descriptor = file.fileno()
    except (OSError, AttributeError):  # of pyarrow, or no file at all
        return nullcontext()
    return unchanged(name, descriptor)


@contextmanager
def reading(name: str, given: str = "") -> Iterator[None]:
    """Turns an error of the file system or of a decoder into one that names the input.

    Args:
        given: the URI or path; its secrets are kept out of the message.
    """
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error).strip()
        reason = scrubbed(reason, given) if "://" in given else reason
        if "Truncated compressed stream" in reason:
            raise InputError(
                f"{name} is truncated: its compressed data end in the middle; copy it again"
            ) from error
        if "decompress failed" in reason or "inflate failed" in reason:
            raise InputError(f"{name} is damaged: {reason}; copy it again") from error
        raise InputError(f"cannot read {name}: {reason}") from error


def locate(given: str) -> Source:
    """Find the input.

    URIs go to `pyarrow.fs`, and those that it does not know to fsspec where that is installed.

    Raises:
        InputError: there is no such file, or a folder without Parquet files.
    """
    if given == STDIN:
        return Source(name="stdin")
    name = shown_input(given)
    if not _is_utf8(given):
        raise InputError(
            f"cannot read {name}: its name is not UTF-8; give the file another name, or give what "
            "is in it on stdin (`-`)"
        )
    with reading(name, given):
        filesystem, path = open_filesystem(given)
        info = filesystem.get_file_info(path)
    if info.type == fs.FileType.NotFound:
        raise InputError(f"there is no file {name}")
    if info.type == fs.FileType.Directory:
        return _folder(name, filesystem, path)
    return Source(name, (path,), info.size, filesystem=filesystem)


def _is_utf8(given: str) -> bool:
    """Whether pyarrow can be asked for it: it takes no other bytes in a name."""
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True


def _folder(name: str, filesystem: fs.FileSystem, path: str) -> Source:
    with reading(name):
        infos = filesystem.get_file_info(fs.FileSelector(path))
    files = sorted(
        (info.path, info.size)
        for info in infos
        if info.type == fs.FileType.File
        and info.path.endswith(PARQUET_SUFFIXES)
        and info.base_name[0] not in "._"
    )
    if not files:
        raise InputError(
            f"the folder {name} holds no Parquet files (*.parquet); name a file, or the folder "
            "that holds them"
        )
    paths, sizes = zip(*files, strict=True)
    return Source(name, paths, sum(sizes), is_folder=True, filesystem=filesystem)


def open_filesystem(given: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or a URI, and the path in it."""
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", given):
        return fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(given))
    try:
        filesystem, path = fs.FileSystem.from_uri(given)
    except pa.ArrowInvalid:
        return _open_fsspec(given)
    return filesystem, path


def _open_fsspec(given: str) -> tuple[fs.FileSystem, str]:
    name = shown_input(given)
    try:
        import fsspec
    except ImportError:
        raise InputError(
            f"cannot read {name}: pyarrow has no file system of this kind; "
            "`pip install fsspec` adds more"
        ) from None
    try:
        filesystem, path = fsspec.core.url_to_fs(given)
    except (ValueError, ImportError, OSError) as error:
        raise InputError(f"cannot read {name}: {scrubbed(str(error), given)}") from error
    return fs.PyFileSystem(fs.FSSpecHandler(filesystem)), path


class Replay(io.RawIOBase):
    """A stream whose first bytes were looked at, and are read again; it counts what is read.

    Attributes:
        count: bytes that were taken from the stream.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._head = b""
        self.count = 0

    def readable(self) -> bool:
        return True

    def peek(self, size: int) -> bytes:
        """The next bytes; fewer than `size` only where the stream ends."""
        while len(self._head) < size and (block := self._take(size - len(self._head))):
            self._head += block
        return self._head[:size]

    def read(self, size: int = -1) -> bytes:
        if self._head:
            block, self._head = self._head[:size], self._head[size:]
            return block
        return self._take(size)

    def _take(self, size: int) -> bytes:
        block = self._stream.read(size) or b""
        self.count += len(block)
        return block
