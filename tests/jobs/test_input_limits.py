"""Inputs that are small and would become large: an error, and bounded memory."""

from __future__ import annotations

import gzip
import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from jobs import submission
from jobs.errors import InputError
from jobs.reading import page_sizes
from jobs.reading.columns import MAX_COLUMNS
from jobs.reading.jsonl import MAX_KEYS
from jobs.reading.row_groups import read_row_groups
from tests.support.submissions import prepare_file, prepare_lines, prepare_table

MIB = 1 << 20
GOOD = b'{"prompt": "x"}\n'
MOST_MEMORY = 1024 * MIB  # a line of 16 MiB may hold millions of values


def _gzip(path: Path, block: bytes, count: int) -> None:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(GOOD)
        for _ in range(count):
            file.write(block)
        file.write(b"\n" + GOOD)


def _zstd(path: Path, block: bytes, count: int) -> None:
    with open(path, "wb") as out, zstandard.ZstdCompressor().stream_writer(out) as file:
        file.write(GOOD)
        for _ in range(count):
            file.write(block)
        file.write(b"\n" + GOOD)


def _line(path: Path, line: bytes) -> None:
    path.write_bytes(GOOD + line + b"\n" + GOOD)


def _list(path: Path, count: int) -> None:
    values = pa.array([np.zeros(count, dtype=np.int8)])
    pq.write_table(pa.table({"prompt": ["x"], "big": values}), path)


MANY_KEYS = b'{"prompt": "x", %s}' % b", ".join(b'"key%d": 1' % i for i in range(300_000))
MANY_LISTS = b'{"prompt": "x", "a": [%s]}' % b", ".join([b"[]"] * 2_000_000)
MANY_MESSAGES = b'{"messages": [%s]}' % b", ".join([b'{"role": "user", "content": "a"}'] * 200_000)
DEEP = b'{"prompt": "x", "a": %s}' % (b"[" * 4_000_000 + b"]" * 4_000_000)

# What is written, and the number of refused rows; None where the whole input is refused.
BOMBS: dict[str, tuple[Callable[[Path], None], int | None]] = {
    "long_line.jsonl.gz": (lambda path: _gzip(path, b"a" * MIB, 256), 1),
    "long_line.jsonl.zst": (lambda path: _zstd(path, b" " * MIB, 1024), 1),
    "blank_lines.jsonl.gz": (lambda path: _gzip(path, b"\n" * MIB, 16), 0),
    "deep.jsonl": (lambda path: _line(path, DEEP), 1),
    "keys.jsonl": (lambda path: _line(path, MANY_KEYS), 1),
    "lists.jsonl": (lambda path: _line(path, MANY_LISTS), 0),
    "messages.jsonl": (lambda path: _line(path, MANY_MESSAGES), 0),
    "number.jsonl": (lambda path: _line(path, b'{"prompt": "x", "a": 1%s}' % (b"0" * 9 * MIB)), 1),
    "values.parquet": (lambda path: _list(path, 30_000_000), None),
}

# A process takes over the `ru_maxrss` of the one that started it, so Linux is asked for the peak
# of this program's own memory.
PREPARE = """
import json, resource, sys, tempfile
from pathlib import Path
from jobs.errors import InputError
from jobs.storage import Storage
from jobs.submission import Submission, prepare
found = {}
for path in sys.argv[2:]:
    try:
        plan = prepare(Submission(path, "m"), Storage(sys.argv[1])).plan
        found[path] = [plan.total_rows, plan.rejected]
    except InputError as error:
        found[path] = str(error)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
peak *= 1 if sys.platform == "darwin" else 1024
status = Path("/proc/self/status")
if status.exists():
    (line,) = (l for l in status.read_text().splitlines() if l.startswith("VmHWM:"))
    peak = int(line.split()[1]) * 1024
print(json.dumps([found, peak]))
"""


def test_what_becomes_large_takes_bounded_memory(tmp_path: Path) -> None:
    for name, (write, _) in BOMBS.items():
        write(tmp_path / name)
    done = subprocess.run(
        [sys.executable, "-c", PREPARE, str(tmp_path / "storage"),
         *(str(tmp_path / name) for name in BOMBS)],
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    found, peak = json.loads(done.stdout)
    for name, (_, rejected) in BOMBS.items():
        outcome = found[str(tmp_path / name)]
        if rejected is None:
            assert "the limit is" in outcome
        else:
            assert outcome == [3 if "blank" not in name else 2, rejected], name
    assert peak < MOST_MEMORY


@pytest.mark.quick
def test_a_page_over_the_limit_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a dictionary of long prompts, and as plain values; not where the pages are small."""
    monkeypatch.setattr(page_sizes, "MAX_PAGE_BYTES", 1 * MIB)
    table = pa.table({"prompt": [f"{i:06d}" * 20_000 for i in range(40)], "n": range(40)})
    path = tmp_path / "a.parquet"
    refused = 0
    for nested in (False, True):
        if nested:
            messages = [[{"role": "user", "content": text}] for text in table["prompt"].to_pylist()]
            table = pa.table({"messages": messages})
        for options in ({}, {"use_dictionary": False, "data_page_size": 1 << 30}):
            pq.write_table(table, path, compression="zstd", **options)
            with pytest.raises(InputError, match=r"in one page; the limit is 1 MiB"):
                prepare_file(path, tmp_path / "storage")
            refused += 1
        options = {"use_dictionary": False, "data_page_size": 1000, "write_batch_size": 1}
        pq.write_table(table, path, **options)
        assert prepare_file(path, tmp_path / "storage").job.plan.total_rows == 40
        with monkeypatch.context() as patched:
            patched.setattr(page_sizes, "_HEADER_BYTES", 1)  # headers are read in pieces
            assert prepare_file(path, tmp_path / "storage").job.plan.total_rows == 40
    assert refused == 4


@pytest.mark.quick
def test_columns_that_are_not_read_may_have_any_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is read is looked at, and all else is not."""
    monkeypatch.setattr(page_sizes, "MAX_PAGE_BYTES", 1000)
    table = pa.table({"body": ["x" * 10_000], "bod": ["x"]})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    with open(path, "rb") as file:
        (group,) = itertools.islice(read_row_groups(file), 1)
    page_sizes.check_page_sizes("a", partial(open, path, "rb"), group, ["bod"])
    with pytest.raises(InputError):
        page_sizes.check_page_sizes("a", partial(open, path, "rb"), group, ["body"])


@pytest.mark.slow
@pytest.mark.quick
def test_too_many_keys_are_an_error_row(tmp_path: Path) -> None:
    keys = {f"data{i}": i for i in range(MAX_KEYS - 1)}
    line = {"custom_id": "b", "method": "POST", "url": "/v1/completions"}
    done = prepare_lines(
        tmp_path,
        {"prompt": "x"} | keys,
        {"prompt": "x", "one": 1} | keys,
        line | {"body": {"prompt": "x", "two": 2} | keys},
    )
    assert [(at, code) for at, code, _ in done.errors()] == [
        (2, "too_many_keys"), (3, "too_many_keys"),
    ]  # fmt: skip


@pytest.mark.quick
def test_too_many_columns_are_refused(tmp_path: Path) -> None:
    table = pa.table({"prompt": ["x"]} | {f"c{i}": [i] for i in range(MAX_COLUMNS)})
    with pytest.raises(InputError, match="has 4,097 columns; the limit is 4,096"):
        prepare_table(tmp_path, table)


@pytest.mark.quick
def test_too_many_rows_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "MAX_ROWS", 3)
    assert len(prepare_lines(tmp_path, *[{"prompt": "x"}] * 3).rows()) == 3
    with pytest.raises(InputError, match="over 3 rows; cut it into several files"):
        prepare_lines(tmp_path, *[{"prompt": "x"}] * 4)
