"""Damaged inputs end in a job or in an InputError, and soon."""

from __future__ import annotations

import gzip
import io
import random
import resource
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from jobs.errors import InputError, UsageError
from jobs.storage import Storage
from jobs.submission import Submission, prepare

FILES_OF_A_KIND = 250
MOST_MEMORY = 400 << 20
KINDS = ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"]
TEMPLATE = (
    "{% macro m(x, n=2) %}{{ x|upper }}{% endmacro %}{% for k, v in row.items() if v %}"
    "{{ m(k) ~ ': ' }}{{ v|tojson(indent=1) }}{% set n = loop.index ** 2 %}{{ 'x' * n }}"
    "{% endfor %}{{ prompt if prompt else messages|length }}{# a note #}{{ '%05d' % 7 }}"
)


def _lines() -> bytes:
    return b"\n".join(orjson.dumps(_row(i)) for i in range(20))


def _row(i: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": [{"type": "text", "text": f"hi {i}"}]}]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}
    match i % 4:
        case 0:
            return {
                "messages": messages,
                "tools": [{"type": "function", "function": {"name": "f"}}],
            }
        case 1:
            return {"custom_id": f"id-{i}", "prompt": f"word {i} \u00e9", "n": 2, "x": [i, {}]}
        case 2:
            body = {"model": "tiny", "prompt": [f"word {i}"], "logprobs": 5, "echo": False}
            url = "/v1/completions"
        case _:
            calls = [*messages, {"role": "assistant", "tool_calls": [call]}]
            body = {"messages": calls, "max_completion_tokens": 9, "logprobs": True, "stop": None}
            url = "/v1/chat/completions"
    return {"custom_id": f"id-{i}", "method": "POST", "url": url, "body": body, "meta": i}


def _parquet() -> bytes:
    message = [{"role": "user", "content": "hi", "tool_calls": None, "name": "ann"}]
    table = pa.table(
        {
            "prompt": [f"word {i}" if i % 2 else None for i in range(20)],
            "messages": [None if i % 2 else message for i in range(20)],
            "tools": [None if i % 2 else '[{"function": {"name": "f"}}]' for i in range(20)],
            "custom_id": [f"id-{i}" for i in range(20)],
            "temperature": [0.5] * 20,
            "x": [[i] for i in range(20)],
        }
    )
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=10)
    return file.getvalue()


def _damage(content: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(rng.choice((0, 1, 2, 8))):
        place = rng.randrange(len(damaged))
        match rng.randrange(3):
            case 0:
                damaged[place] = rng.randrange(256)
            case 1:
                damaged[place:place] = rng.choice((b"\n", b"{", b'"', b"\0", b"\xff", b"[" * 3000))
            case 2:
                del damaged[place : place + rng.randrange(4)]
    if rng.random() < 0.3:
        del damaged[rng.randrange(len(damaged)) :]
    return bytes(damaged)


def test_no_row_is_refused_while_it_is_whole(tmp_path: Path) -> None:
    for name, content in (("a.jsonl", _lines()), ("a.parquet", _parquet())):
        (tmp_path / name).write_bytes(content)
        job = prepare(Submission(str(tmp_path / name), "tiny"), Storage(str(tmp_path / "storage")))
        assert (job.plan.total_rows, job.plan.rejected) == (20, 0)


@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_file_ends_in_a_job_or_an_input_error(tmp_path: Path, name: str) -> None:
    _prepare_damaged(tmp_path, name, FILES_OF_A_KIND)


@pytest.mark.chaos
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", KINDS)
def test_many_damaged_files_end_so_too(tmp_path: Path, name: str) -> None:
    _prepare_damaged(tmp_path, name, 10 * FILES_OF_A_KIND, seed="many ")


def _prepare_damaged(folder: Path, name: str, files: int, seed: str = "") -> None:
    """Prepare so many damaged files of a kind, and every third with a damaged template."""
    whole = {
        "a.jsonl": _lines(),
        "a.jsonl.gz": gzip.compress(_lines(), mtime=0),
        "a.jsonl.zst": zstandard.ZstdCompressor(write_checksum=True).compress(_lines()),
        "a.parquet": _parquet(),
    }[name]
    rng = random.Random(seed + name)
    path, storage = folder / name, Storage(str(folder / "storage"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    jobs = refusals = 0
    for number in range(files):
        path.write_bytes(_damage(whole, rng))
        options = {"template": _template(rng)} if number % 3 == 0 else {}
        started = time.monotonic()
        try:
            job = prepare(Submission(str(path), "tiny", **options), storage)
        except (InputError, UsageError) as error:
            refusals += 1
            message = str(error)
            assert "Traceback" not in message
            assert len(message) < 5000
        else:
            jobs += 1
            assert sum(window.rows for window in job.plan.windows) == job.plan.total_rows
            assert sum(chunk.rows for chunk in job.plan.chunks) == (
                job.plan.total_rows - job.plan.rejected
            )
            assert sum(t.rows for t in job.plan.rejected_errors) == job.plan.rejected
        assert time.monotonic() - started < 20
    assert jobs > 10
    assert refusals > 0
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * (1 if sys.platform == "darwin" else 1024) < MOST_MEMORY


def _template(rng: random.Random) -> str:
    return _damage(TEMPLATE.encode(), rng).decode(errors="replace")
