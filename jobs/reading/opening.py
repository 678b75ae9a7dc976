"""Opening the input: what it is, by its name and its first bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pyarrow as pa

from jobs.errors import InputError, UsageError
from jobs.prompts import PromptRules
from jobs.reading.blocks import Reader
from jobs.reading.jsonl import JsonLines
from jobs.reading.lines import READ_BYTES
from jobs.reading.parquet import ParquetRows
from jobs.reading.sources import PARQUET_SUFFIXES, Replay, Source, locate, reading
from jobs.reading.unpacking import MAX_UNPACKED_BYTES, UnpackedLimit
from jobs.validation import RowValidator

FORMATS = ("jsonl", "parquet")
_MAGIC_BYTES = 8
PARQUET_MAGIC = b"PAR1"
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    **{bytes([n]) + b"\x2a\x4d\x18": "zstd" for n in range(0x50, 0x60)},  # skippable frames
}
_FOREIGN = {
    b"PK\x03\x04": "a zip archive (or an Excel file)",
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ\x00": "compressed with xz",
    b"ARROW1": "an Arrow or Feather file",
    b"SQLite f": "an SQLite database",
}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_TABLES = (".csv", ".tsv", ".xlsx", ".xls")


@contextmanager
def open_input(
    given: str | Source,
    rules: PromptRules,
    input_format: str | None = None,
    read_bytes: int = READ_BYTES,
    max_unpacked: int = MAX_UNPACKED_BYTES,
) -> Iterator[Reader]:
    """Open the input that a person named.

    The format is what `input_format` says, else what the name says (`.parquet`, `.csv`), else
    what the first bytes say; whether JSON lines are compressed is seen from the bytes alone.

    Args:
        given: path, URI, or `-` for stdin; or a source that was found otherwise.
        read_bytes: how much is read at once.
        max_unpacked: bytes that it may have unpacked, unless it is large as it is.

    Raises:
        InputError: it is missing, empty, or nothing that pagemill reads.
        UsageError: `input_format` is unknown.
    """
    if input_format is not None and input_format not in FORMATS:
        raise UsageError(f"the input format is {input_format!r}; it must be jsonl or parquet")
    source = locate(given) if isinstance(given, str) else given
    limit = UnpackedLimit.of(source.name, source.size, max_unpacked)
    if _is_parquet(source, input_format):
        with source.files_unchanged(), ParquetRows(source, rules, limit) as rows:
            yield rows
        return
    with ExitStack() as stack:
        raw = Replay(stack.enter_context(source.stream()))
        with reading(source.name):
            head = raw.peek(_MAGIC_BYTES)
        if not head:
            raise InputError(f"{source.name} is empty")
        if head.startswith(PARQUET_MAGIC):
            if input_format == "jsonl" or source.filesystem is None:
                raise InputError(_parquet_in_disguise(source))
            raw.close()
            stack.enter_context(source.files_unchanged())
            yield stack.enter_context(ParquetRows(source, rules, limit))
            return
        read = _decompressed(source, raw, head, stack, limit)
        yield JsonLines(
            source.name,
            read,
            RowValidator(rules),
            position=lambda: raw.count,
            size=source.size,
            read_bytes=read_bytes,
        )


def plain_text(source: Source, stack: ExitStack, limit: UnpackedLimit) -> Callable[[int], bytes]:
    """Reads the text of a file of JSON lines, decompressed.

    Args:
        stack: closes it.

    Raises:
        InputError: it is empty, or nothing that pagemill reads as JSON lines.
    """
    raw = Replay(stack.enter_context(source.stream()))
    with reading(source.name):
        head = raw.peek(_MAGIC_BYTES)
    if not head:
        raise InputError(f"{source.name} is empty")
    return _decompressed(source, raw, head, stack, limit)


def _is_parquet(source: Source, input_format: str | None) -> bool:
    if source.is_folder:
        if input_format == "jsonl":
            raise InputError(f"{source.name} is a folder; JSON lines are read from one file")
        return True
    if source.filesystem is None and input_format == "parquet":
        raise InputError(_parquet_in_disguise(source))
    if input_format is not None:
        return input_format == "parquet"
    name = source.paths[0].lower() if source.paths else ""
    if name.endswith(_TABLES):
        raise InputError(
            f"{source.name} is a table that pagemill does not read; convert it to Parquet "
            "(pandas: read_csv(…).to_parquet(…)) or to JSON lines"
        )
    return name.endswith(PARQUET_SUFFIXES)


def _decompressed(
    source: Source, raw: Replay, head: bytes, stack: ExitStack, limit: UnpackedLimit
) -> Callable[[int], bytes]:
    """Reads the text of JSON lines, once its beginning does not look like something else."""
    codec = next((c for magic, c in _COMPRESSED.items() if head.startswith(magic)), None)
    if codec is None:
        text = raw
        _refuse_suffix(source)
    else:
        inner = stack.enter_context(pa.PythonFile(raw, mode="r"))
        text = Replay(stack.enter_context(pa.CompressedInputStream(inner, codec)))
        with reading(source.name):
            head = text.peek(_MAGIC_BYTES)
        if not head:
            raise InputError(f"{source.name} is empty")
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise InputError(
                f"{source.name} is {what}; pagemill reads JSON lines (plain, .gz, .zst) and Parquet"
            )
    if head.startswith(_UTF16):
        raise InputError(
            f"{source.name} is UTF-16; convert it: iconv -f utf-16 -t utf-8 FILE > rows.jsonl"
        )
    if codec is not None and head.startswith(PARQUET_MAGIC):
        raise InputError(f"{source.name} is a compressed Parquet file; unpack it first")
    if codec is None:
        return text.read

    def read(size: int) -> bytes:
        block = text.read(size)
        limit.check(text.count)
        return block

    return read


def _refuse_suffix(source: Source) -> None:
    """A name that promises compression over bytes that are not compressed."""
    name = source.paths[0].lower() if source.paths else ""
    for suffix, codec in ((".gz", "gzip"), (".zst", "zstd")):
        if name.endswith(suffix):
            raise InputError(
                f"{source.name} is not compressed with {codec}, as its name says; rename it, or "
                "copy it again"
            )


def _parquet_in_disguise(source: Source) -> str:
    if source.filesystem is None:
        return "Parquet cannot be read from stdin, since it is read from its end; name the file"
    return f"{source.name} is Parquet, not JSON lines; leave the input format out"
