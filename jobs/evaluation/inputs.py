"""Several files as one input: paths, URIs, folders and patterns, in the order of their names."""

from __future__ import annotations

import glob
import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, BinaryIO, cast

from pyarrow import fs

from jobs.errors import InputError
from jobs.reading.opening import PARQUET_MAGIC, plain_text
from jobs.reading.sources import PARQUET_SUFFIXES, STDIN, Source, locate, open_filesystem, reading
from jobs.reading.unpacking import MAX_UNPACKED_BYTES, UnpackedLimit
from jobs.shown_urls import shown_input

_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Inputs:
    """The files of an evaluation.

    Attributes:
        source: all of them together, as readers take them.
        files: each of them.
    """

    source: Source
    files: tuple[Source, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(file.name for file in self.files)

    def stamp(self) -> list[tuple[str, Any, Any]]:
        """What changes when a file is written: asked before and after it is read."""
        found = []
        for file in self.files:
            assert file.filesystem is not None
            with reading(file.name, file.paths[0]):
                info = file.filesystem.get_file_info(file.paths[0])
            found.append((file.name, info.size, info.mtime_ns))
        return found


def absolute(given: str) -> str:
    """An input as it is known wherever the evaluation is run: a path does not stay relative."""
    return given if "://" in given or given == STDIN else os.path.abspath(os.path.expanduser(given))


def find(inputs: Sequence[str], max_unpacked: int = MAX_UNPACKED_BYTES) -> Inputs:
    """Find all files of some inputs; one that two of them name is there once.

    Args:
        max_unpacked: bytes that each file may have unpacked, unless it is large as it is.

    Raises:
        InputError: there is no such file, no file fits a pattern, or the files do not fit together.
    """
    found: dict[str, Source] = {}
    for given in inputs:
        for located in _located(given):
            for path in located.paths:
                name = path if located.is_folder else located.name
                size = _size(located, path)
                found[path] = Source(name, (path,), size, filesystem=located.filesystem)
    files = tuple(found[path] for path in sorted(found))
    if len(files) == 1:
        return Inputs(files[0], files)
    name = f"{files[0].name} and {len(files) - 1} more"
    sizes = [file.size for file in files if file.size is not None]
    total = sum(sizes) if len(sizes) == len(files) else None
    if _are_parquet(files):
        paths = tuple(file.paths[0] for file in files)
        return Inputs(_Tables(name, paths, total, True, files[0].filesystem, files), files)
    lines = _Lines(name, (), total, False, files[0].filesystem, files, max_unpacked)
    return Inputs(lines, files)


def _located(given: str) -> Iterator[Source]:
    if given == STDIN:
        raise InputError(
            "an evaluation cannot read stdin, as its rows are read again at each run; name a file"
        )
    if not _WILD.search(given) or _is_there(given):
        yield locate(given)
        return
    matches = _matches(given)
    if not matches:
        raise InputError(
            f"no file fits the pattern {shown_input(given)}; see that it is in quotes, and that "
            "the files are where it says"
        )
    yield from matches


def _is_there(given: str) -> bool:
    """A file may have a bracket in its name."""
    return "://" not in given and os.path.exists(os.path.expanduser(given))


def _matches(pattern: str) -> list[Source]:
    if "://" not in pattern:
        where = os.path.abspath(os.path.expanduser(pattern))
        names = glob.glob(where, recursive=True)
        return [locate(name) for name in sorted(names) if os.path.isfile(name)]
    with reading(shown_input(pattern), pattern):
        filesystem, path = open_filesystem(pattern)
        still = _WILD.split(path)[0]
        folder = still if still.endswith("/") else posixpath.dirname(still)
        infos = filesystem.get_file_info(
            fs.FileSelector(folder, recursive=True, allow_not_found=True)
        )
    scheme = pattern.partition("://")[0]
    return [
        Source(f"{scheme}://{info.path}", (info.path,), info.size, filesystem=filesystem)
        for info in infos
        if info.type == fs.FileType.File and _fits(path.split("/"), info.path.split("/"))
    ]


def _fits(pattern: Sequence[str], path: Sequence[str]) -> bool:
    """As in a shell: a `*` stays in its folder, `**` is any number of folders."""
    if not pattern or not path:
        return not pattern and not path
    if pattern[0] == "**":
        return any(_fits(pattern[1:], path[skipped:]) for skipped in range(len(path)))
    return fnmatchcase(path[0], pattern[0]) and _fits(pattern[1:], path[1:])


def _size(source: Source, path: str) -> int | None:
    if not source.is_folder or source.filesystem is None:
        return source.size
    return cast(int, source.filesystem.get_file_info(path).size)


def _are_parquet(files: Sequence[Source]) -> bool:
    """Whether all are Parquet; refused are some of each."""
    kinds = {file.name: _is_parquet(file) for file in files}
    if len(set(kinds.values())) == 1:
        return kinds[files[0].name]
    table = next(name for name, is_table in kinds.items() if is_table)
    lines = next(name for name, is_table in kinds.items() if not is_table)
    raise InputError(
        f"{table} is Parquet, and {lines} is not; give files of one format, or make two "
        "evaluations of them"
    )


def _is_parquet(file: Source) -> bool:
    if file.paths[0].lower().endswith(PARQUET_SUFFIXES):
        return True
    with file.stream() as stream, reading(file.name):
        return (stream.read(len(PARQUET_MAGIC)) or b"") == PARQUET_MAGIC


@dataclass(frozen=True, slots=True)
class _Tables(Source):
    """Parquet files, wherever they lie, as those of one folder."""

    files: tuple[Source, ...] = ()

    def open_at_random(self, path: str) -> Any:
        file = next(file for file in self.files if file.paths[0] == path)
        return Source.open_at_random(file, path)


@dataclass(frozen=True, slots=True)
class _Lines(Source):
    """Files of JSON lines, plain or compressed, as one plain one."""

    files: tuple[Source, ...] = ()
    max_unpacked: int = MAX_UNPACKED_BYTES

    @contextmanager
    def stream(self) -> Iterator[BinaryIO]:
        with ExitStack() as stack:
            yield cast(BinaryIO, _Joined(self.files, stack, self.max_unpacked))


class _Joined:
    """The texts of some files one after the other; each begins on a line of its own."""

    def __init__(self, files: Sequence[Source], stack: ExitStack, max_unpacked: int) -> None:
        self._stack = stack
        self._max_unpacked = max_unpacked
        self._left = list(reversed(files))
        self._file: ExitStack | None = None
        self._read: Any = None
        self._ends_a_line = True

    def read(self, size: int) -> bytes:
        while True:
            if self._read is None:
                if not self._left:
                    return b""
                self._open(self._left.pop())
            block: bytes = self._read(size)
            if block:
                self._ends_a_line = block.endswith(b"\n")
                return block
            self._close()
            if not self._ends_a_line:
                self._ends_a_line = True
                return b"\n"

    def close(self) -> None:
        self._close()

    def _open(self, file: Source) -> None:
        self._file = self._stack.enter_context(ExitStack())
        limit = UnpackedLimit.of(file.name, file.size, self._max_unpacked)
        self._read = plain_text(file, self._file, limit)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._read = None
