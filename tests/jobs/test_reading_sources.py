"""Finding and opening the input, and refusing what is no input."""

from __future__ import annotations

import gzip
import io
import os
import sys
import threading
from functools import partial
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from jobs.errors import InputError, UsageError
from jobs.prompts import PromptRules
from jobs.reading.opening import open_input
from jobs.rows import Row
from tests.support.submissions import prepare_file

pytestmark = pytest.mark.quick

LINES = b'{"prompt":"a"}\n{"prompt":"b"}\n'
# Without the time, of which the names of tests would tell: all test processes must agree on them.
gzipped = partial(gzip.compress, mtime=0)


def read(given: str | Path, input_format: str | None = None) -> list[Row]:
    with open_input(str(given), PromptRules(), input_format) as reader:
        return [row for block in reader.blocks() for row in block.rows]


def prompts(given: str | Path, input_format: str | None = None) -> list[bytes | None]:
    return [row.prompt for row in read(given, input_format)]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a", "a.JSONL"])
def test_json_lines_under_any_name(tmp_path: Path, name: str) -> None:
    assert prompts(write(tmp_path / name, LINES)) == [b"a", b"b"]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.jsonl", "a"])
def test_compression_is_seen_from_the_bytes(tmp_path: Path, name: str) -> None:
    if not name.endswith(".zst"):
        assert prompts(write(tmp_path / name, gzipped(LINES))) == [b"a", b"b"]
    if not name.endswith(".gz"):
        assert prompts(write(tmp_path / name, zstandard.compress(LINES))) == [b"a", b"b"]


@pytest.mark.parametrize("name", ["a.parquet", "a.pq", "a", "a.jsonl"])
def test_parquet_under_any_name(tmp_path: Path, name: str) -> None:
    pq.write_table(pa.table({"prompt": ["a", "b"]}), tmp_path / name)
    assert prompts(tmp_path / name) == [b"a", b"b"]


def test_a_folder_of_parquet_files_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("b.parquet", "a.parquet", "_hidden.parquet", ".c.parquet"):
        pq.write_table(pa.table({"prompt": [name]}), tmp_path / name)
    (tmp_path / "_SUCCESS").touch()
    rows = read(tmp_path)
    assert [(row.line, row.prompt) for row in rows] == [(1, b"a.parquet"), (2, b"b.parquet")]


def test_uris_of_pyarrow_and_of_fsspec(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", LINES)
    assert prompts(path.as_uri()) == [b"a", b"b"]
    memory = fsspec.filesystem("memory")
    with memory.open("/inputs/a.jsonl.gz", "wb") as file:
        file.write(gzipped(LINES))
    try:
        assert prompts("memory://inputs/a.jsonl.gz") == [b"a", b"b"]
        with pytest.raises(InputError, match="there is no file memory://inputs/other"):
            read("memory://inputs/other.jsonl")
    finally:
        memory.rm("/inputs", recursive=True)


def test_a_uri_of_an_unknown_kind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read nosuch://user:\*\*\*@host/a.jsonl"):
        read("nosuch://user:secret@host/a.jsonl")


@pytest.mark.parametrize("content", [LINES, gzipped(LINES), zstandard.compress(LINES)])
def test_stdin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(content))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert prompts("-") == [b"a", b"b"]
    assert not stdin.buffer.closed


def test_parquet_on_stdin_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for content, input_format in ((b"PAR1....", None), (LINES, "parquet")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        with pytest.raises(InputError, match="Parquet cannot be read from stdin"):
            read("-", input_format)


def test_a_named_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(LINES,))
    writer.start()
    try:
        assert prompts(pipe) == [b"a", b"b"]
    finally:
        writer.join()


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.jsonl", LINES)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert prompts("~/a.jsonl") == [b"a", b"b"]


TRUNCATED = gzipped(LINES * 100)[:-30]
REFUSED: list[tuple[str, bytes, str]] = [
    ("a.jsonl", b"", "a.jsonl is empty"),
    ("a.jsonl.gz", b"", "a.jsonl.gz is empty"),
    ("a.jsonl.gz", gzipped(b""), "a.jsonl.gz is empty"),
    ("a.jsonl", b"\n \n\r\n", "a.jsonl has no rows"),
    ("a.jsonl", b'[\n{"prompt":"a"},\n{"prompt":"b"}\n]', r"JSON array.*jq -c '\.\[\]'"),
    ("a.jsonl", b'[{"prompt":"a"},{"prompt":"b"}]', r"JSON array.*jq -c '\.\[\]'"),
    ("a.json", b' \n [\n {\n"prompt":"a"}]', r"JSON array"),
    ("a.jsonl", b'{\n  "prompt": "a"\n}', r"spans several lines.*jq -c \."),
    ("a.txt", b"id,prompt\n1,hi\n", "(?s)It looks like CSV.*line 1: not JSON"),
    ("a.csv", b"id,prompt\n1,hi\n", "convert it to Parquet"),
    ("a.xlsx", b"PK\x03\x04", "convert it to Parquet"),
    ("a.jsonl", b"PK\x03\x04....", "a zip archive"),
    ("a.jsonl", b"BZh91AY", "compressed with bzip2"),
    ("a.jsonl", gzipped(b"PK\x03\x04...."), "a zip archive"),
    ("a.jsonl", gzipped(b"PAR1....PAR1"), "compressed Parquet file; unpack it"),
    ("a.jsonl", '{"prompt":"a"}'.encode("utf-16"), "UTF-16; convert it: iconv"),
    ("a.jsonl", b"\xfe\xff" + '{"prompt":"a"}'.encode("utf-16-be"), "UTF-16; convert it"),
    ("a.jsonl.gz", TRUNCATED, "a.jsonl.gz is truncated"),
    ("a.jsonl.gz", gzipped(LINES) + TRUNCATED, "a.jsonl.gz is truncated"),
    ("a.jsonl.zst", zstandard.compress(LINES * 100)[:-5], "a.jsonl.zst is truncated"),
    ("a.jsonl.zst", zstandard.compress(LINES) + b"\x28\xb5\x2f", "a.jsonl.zst is truncated"),
    ("a.jsonl.gz", gzipped(LINES) + b"garbage", "a.jsonl.gz is damaged"),
    ("a.jsonl.gz", LINES, "is not compressed with gzip, as its name says"),
    ("a.jsonl.zst", LINES, "is not compressed with zstd, as its name says"),
    ("a.parquet", LINES, "a.parquet is not a whole Parquet file"),
    ("a.parquet", b"", "a.parquet is not a whole Parquet file"),
    ("a.parquet", b"PAR1", "a.parquet is not a whole Parquet file"),
    ("a.jsonl", b'{"prompt":""}\n{"x":1}\n', r"(?s)no row of .*a.jsonl.*line 1:.*line 2:"),
]


@pytest.mark.parametrize(("name", "content", "said"), REFUSED)
def test_what_is_no_input_is_refused_with_what_is_wrong(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(InputError, match=said):
        prepare_file(path, tmp_path / "storage")
    assert list((tmp_path / "storage").glob("[!.]*")) == []  # no folder of a job


def test_only_the_first_few_errors_are_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", b"x\n" * 1000)
    with pytest.raises(InputError, match="line 5: ") as caught:
        prepare_file(path, tmp_path / "storage")
    assert str(caught.value).count("line ") == 5


def test_a_missing_file_and_a_folder_without_parquet(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no file .*nope\.jsonl"):
        read(tmp_path / "nope.jsonl")
    write(tmp_path / "a.jsonl", LINES)
    with pytest.raises(InputError, match="holds no Parquet files"):
        read(tmp_path)


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "caf\udce9.jsonl", LINES)
    with pytest.raises(InputError, match="its name is not UTF-8; give the file another name"):
        read(tmp_path / "caf\udce9.jsonl")


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "loop.jsonl"
    path.symlink_to(path)
    with pytest.raises(InputError, match=r"loop\.jsonl"):
        read(path)


def test_the_format_can_be_named(tmp_path: Path) -> None:
    assert prompts(write(tmp_path / "a.csv", LINES), "jsonl") == [b"a", b"b"]
    pq.write_table(pa.table({"prompt": ["a"]}), tmp_path / "b")
    assert prompts(tmp_path / "b", "parquet") == [b"a"]
    with pytest.raises(InputError, match="is Parquet, not JSON lines"):
        read(tmp_path / "b", "jsonl")
    (tmp_path / "folder").mkdir()
    (tmp_path / "b").rename(tmp_path / "folder" / "b.parquet")
    with pytest.raises(InputError, match="is a folder"):
        read(tmp_path / "folder", "jsonl")
    with pytest.raises(UsageError, match="must be jsonl or parquet"):
        read(tmp_path / "a.csv", "csv")


def test_an_array_on_the_first_line_may_be_a_bad_row(tmp_path: Path) -> None:
    rows = read(write(tmp_path / "a.jsonl", b"[1]\n" + LINES))
    assert [row.error and row.error.code for row in rows] == ["not_an_object", None, None]


def test_the_position_grows_to_the_size(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl.gz", gzipped(LINES * 5000))
    with open_input(str(path), PromptRules()) as reader:
        positions = [reader.position for _ in reader.blocks()]
        assert len(positions) == 5
        assert positions[-1] == reader.size == path.stat().st_size
