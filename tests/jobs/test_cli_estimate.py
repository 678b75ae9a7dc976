"""`pagemill estimate` as people and programs read it; the process that counts is played."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jobs import estimates
from jobs.cli import estimate_text
from jobs.cli.console import size
from jobs.cli.estimate_text import report
from jobs.speeds import MeasuredSpeed
from tests.support.child import child
from tests.support.command_line import CommandLine

GIB = 1 << 30
COUNTED: dict[str, Any] = {
    "rows": 8, "refused": 1, "codes": {"prompt_too_long": 1},
    "errors": [{"line": 5, "code": "prompt_too_long", "message": "it is long"}],
    "prompt_tokens": {"total": 800, "median": 90, "p95": 120, "max": 130},
    "shared_tokens": 200, "completion_tokens": 4096, "cut_short": 0,
    "weights": {"parameters": 1000, "dtype": "float32", "bytes": 4000},
    "kv": {
        "dtype": "float32", "block_size": 16, "block_bytes": 1 << 20, "bytes_per_token": 1 << 16,
        "layers": 2, "kv_heads": 1, "head_dim": 64, "row_blocks": {"median": 10, "max": 40},
        "rows_at_once": 8, "blocks_at_once": {"mean": 100, "max": 200},
    },
    "machine": {
        "device": "cpu", "name": "this machine's memory", "total_bytes": 8 * GIB,
        "usable_bytes": 8 * GIB, "kv_blocks": 4096,
    },
    "fits": {"weights": True, "every_row": True, "rows_over": 0, "all_at_once": True},
    "model": {"path": "/m", "revision": "ab", "architecture": "Llama", "max_model_len": 2048},
}  # fmt: skip

PLAYED = """
import json, os, sys
request = json.loads(sys.stdin.readline())
assert os.path.isfile(os.path.join(request["folder"], request["input_path"]))
with open({asked!r}, "w") as file:
    json.dump(request, file)
print(json.dumps({{"event": "begun", "rows": sum(rows for _, rows in request["chunks"])}}))
print(json.dumps({{"event": "counted", "rows": 5}}))
print(json.dumps({{"event": "estimate", **{counted!r}}}), flush=True)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@pytest.fixture
def cli(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    play(monkeypatch, PLAYED.format(asked=str(tmp_path / "asked.json"), counted=COUNTED))
    return CommandLine(tmp_path / "home", monkeypatch)


def play(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(estimates, "program", lambda _: [sys.executable, "-c", code])


def write(folder: Path, rows: int = 9, *more: str) -> str:
    path = folder / "rows.jsonl"
    path.write_text(
        "".join(f"{line}\n" for line in (*(f'{{"prompt": "p{i}"}}' for i in range(rows)), *more))
    )
    return str(path)


@pytest.mark.quick
def test_a_line_for_each_thing(cli: CommandLine, tmp_path: Path, temporary: Path) -> None:
    file = write(tmp_path, 9, '{"prompt": 5}')

    out, err = cli("estimate", file, "--model", "m")

    assert err == ""
    assert out.splitlines() == [
        "rows           8 can be answered, 2 are refused",
        "               line 5: it is long [prompt_too_long]",
        "               line 10: prompt is 5; it must be a string [wrong_type]",
        "prompt tokens  800 (a row: median 90, 95% up to 120, longest 130)",
        "shared         at most 200 of them (25%) come from the prefix cache, in blocks of 16",
        "answers        at most 4,096 tokens",
        "weights        3.9 KiB: 1,000 parameters in float32",
        "KV cache       64.0 KiB a token (2 layers, 1 KV head of 64, float32)",
        "               a row with the longest answer takes 10 blocks (10.0 MiB) in the median, "
        "at most 40 (40.0 MiB)",
        "               8 rows at once, if they shared nothing: 100 blocks (100.0 MiB) in the "
        "mean, at most 200 (200.0 MiB)",
        "here           fits: beside the weights, the 8.00 GiB of memory that is free holds a KV "
        "cache of 4,096 blocks (4.00 GiB)",
        "speed          never measured: run a small job first: pagemill run "
        f"{file} --model m --limit 32",
    ]
    assert list(temporary.iterdir()) == []
    assert not cli.home.exists()  # neither a database nor a storage


@pytest.mark.quick
def test_as_json_and_what_the_other_process_is_asked(cli: CommandLine, tmp_path: Path) -> None:
    file = write(tmp_path)

    found = cli.json(
        "estimate", file, "--model", "m", "--system", "Be brief.", "--max-tokens", "7", "--limit",
        "8", "--seed", "3", "--block-size", "32", "--kv-cache-dtype", "float16",
    )  # fmt: skip

    assert found["rows"] == {
        "total": 8, "good": 8, "refused": 1, "codes": COUNTED["codes"],
        "errors": COUNTED["errors"],
    }  # fmt: skip
    assert found["sampled_rows"] is found["speed"] is found["seconds_at_most"] is None
    for name in ("prompt_tokens", "shared_tokens", "kv", "weights", "machine", "fits", "model"):
        assert found[name] == COUNTED[name]
    asked = json.loads((tmp_path / "asked.json").read_text())
    assert asked["arguments"] == [
        "--model", "m", "--block-size", "32", "--kv-cache-dtype", "float16",
    ]  # fmt: skip
    assert asked["options"]["system"] == "Be brief."
    assert asked["options"]["sampling"] == {"max_tokens": 7}
    assert (asked["chunks"], asked["seed"]) == ([[0, 8]], 3)


@pytest.mark.quick
def test_a_sample_is_reckoned_up(cli: CommandLine, tmp_path: Path) -> None:
    file = write(tmp_path, 40)

    found = cli.json("estimate", file, "--model", "m", "--chunk-rows", "4", "--sample", "9")

    asked = json.loads((tmp_path / "asked.json").read_text())
    assert asked["chunks"] == [[0, 4], [3, 4], [6, 4]]
    assert found["sampled_rows"] == 12
    assert found["prompt_tokens"]["total"] == 800 * 40 // 12
    assert found["prompt_tokens"]["median"] == 90
    assert found["completion_tokens"] == 4096 * 40 // 12
    out, _ = cli("estimate", file, "--model", "m", "--chunk-rows", "4", "--sample", "9")
    assert "sample         12 rows were tokenized; what follows is reckoned from these" in out
    whole = cli.json("estimate", file, "--model", "m", "--sample", "40")
    assert whole["sampled_rows"] is None


@pytest.mark.quick
def test_bad_options_and_files_are_refused_and_leave_nothing(
    cli: CommandLine, tmp_path: Path, temporary: Path
) -> None:
    file = write(tmp_path)
    assert "it must be 1 or more" in cli(
        "estimate", file, "--model", "m", "--sample", "0", expect=64
    )[1]  # fmt: skip
    assert "--chat-template-kwargs" in cli(
        "estimate", file, "--model", "m", "--chat-template-kwargs", '{"a": 1}', expect=65
    )[1]  # fmt: skip
    assert "no row of" in cli(
        "estimate", write(tmp_path, 0, "[]"), "--model", "m", expect=65
    )[1]  # fmt: skip
    assert list(temporary.iterdir()) == []


@pytest.mark.quick
def test_errors_of_the_other_process_are_ours(
    cli: CommandLine, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = {"event": "error", "kind": "model", "message": "m is not here"}
    play(monkeypatch, f"import json; print(json.dumps({error!r}))")
    assert cli("estimate", write(tmp_path), "--model", "m", expect=3) == (
        "", "Error: m is not here\n",
    )  # fmt: skip
    play(monkeypatch, "")
    _, err = cli("estimate", write(tmp_path), "--model", "m", expect=1)
    assert "ended without a result" in err
    assert list(temporary.iterdir()) == []


@pytest.mark.quick
def test_a_database_that_cannot_be_asked_is_told_of_and_no_reason_to_fail(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEMILL_DATABASE_URL", f"sqlite:///{tmp_path}/none.db")
    out, err = cli("estimate", write(tmp_path), "--model", "m")
    assert "never measured" in out
    assert err.startswith("It is not known how fast the model was measured: there is no database")
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["ctrl-c", "term", "hang-up"],
)
def test_interrupted_it_leaves_nothing_and_nobody(
    cli: CommandLine, tmp_path: Path, temporary: Path, number: int, code: int
) -> None:
    """Whoever counts is ended, and the copy of the input removed."""
    counts = tmp_path / "worker"
    counts.mkdir()
    (counts / "__init__.py").touch()
    begun = temporary / "begun"
    os.mkfifo(begun)
    (counts / "estimate.py").write_text(
        f"import os, time\nwith open({str(begun)!r}, 'w') as file:\n"
        "    file.write(str(os.getpid()))\ntime.sleep(600)"
    )
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}
    with child(
        [sys.executable, "-P", "-m", "jobs", "estimate", write(tmp_path), "--model", "m"],
        env=env, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2],
    ) as process:  # fmt: skip
        counting = int(begun.read_text())
        assert len(list(temporary.iterdir())) == 2
        process.send_signal(number)
        assert process.stderr is not None
        said = process.stderr.read()
        assert (process.wait(60), said) == (code, b"")
    assert [path.name for path in temporary.iterdir()] == ["begun"]
    with pytest.raises(ProcessLookupError):
        os.kill(counting, 0)


# ---- in words


def found(**changes: Any) -> dict[str, Any]:
    rows = {"good": 8, "refused": 0, "errors": []}
    return {**COUNTED, "rows": rows, "sampled_rows": None, **changes}


def line(name: str, *arguments: Any) -> str:
    (text,) = [text for text in report(*arguments, "TRY") if text.startswith(f"{name:<13}  ")]
    return text[15:]


@pytest.mark.quick
def test_where_it_does_not_fit_what_to_do_is_said() -> None:
    fits = {"weights": True, "every_row": True, "rows_over": 0, "all_at_once": False}
    assert "which is about 409 rows at once" in line("here", found(fits=fits), None, None)
    fits = {**fits, "every_row": False, "rows_over": 3}
    told = line("here", found(fits=fits), None, None)
    assert told.startswith("does not fit wholly: ")
    assert "3 rows may need more; lower --max-tokens" in told
    gpu = {
        "device": "cuda:0", "name": "H200", "total_bytes": 140 * GIB, "usable_bytes": 9 * GIB,
        "kv_blocks": 0,
    }  # fmt: skip
    fits = {**fits, "weights": False}
    assert line("here", found(fits=fits, machine=gpu), None, None) == (
        "does not fit: the weights need more than the 9.00 GiB of cuda:0 (H200, 140.00 GiB) "
        "that is free"
    )
    fits = {**fits, "weights": True, "every_row": True, "all_at_once": True}
    told = line("here", found(fits=fits, machine={**gpu, "kv_blocks": 4096}), None, None)
    assert told.endswith("holds a KV cache of at most 4,096 blocks (4.00 GiB)")


@pytest.mark.quick
def test_a_speed_is_told_with_where_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate_text, "duration", lambda seconds: f"{seconds:g} s")
    at = datetime(2030, 1, 31, 8, tzinfo=UTC)
    job = MeasuredSpeed(
        "job", "job_x", at, 50, "gpu-7:4711:0f", "cuda:0", "bfloat16", 60, 600, 3000
    )
    moment = at.astimezone().isoformat(" ", "minutes")
    assert line("speed", found(), job, 90.0) == (
        f"50 tokens/s generated, with 10 prompt tokens/s: job job_x at {moment}, in 60 s, begun "
        "by worker gpu-7:4711:0f on cuda:0 in bfloat16"
    )
    assert line("time", found(), job, 90.0) == (
        "at most 90 s for prompts and answers at that speed, if all answers are as long as they "
        "may be"
    )
    short = MeasuredSpeed("job", "job_x", at, 50, seconds=29, computed_tokens=1)
    assert line("speed", found(), short, 90.0).endswith("in 29 s (a longer one would tell more)")
    forgotten = MeasuredSpeed("job", "job_x", at, 50, "gpu-7:4711:0f", None, None, 60, 600, 3000)
    assert line("speed", found(), forgotten, None).endswith("a device that is not known any more")
    worker = MeasuredSpeed("worker", "cpu-1:1:ab", at, 12.5, device="cpu", dtype="float32")
    assert line("speed", found(), worker, 8.0) == (
        f"12 tokens/s generated, as worker cpu-1:1:ab on cpu in float32 said last at {moment}"
    )
    assert line("time", found(), worker, 8.0).startswith("at most 8 s for the answers alone")
    assert line("time", found(), job, None).startswith("cannot be told")


@pytest.mark.quick
def test_sizes_are_short() -> None:
    shown = [size(number) for number in (0, 1023, 1536, 5 << 20, 3 * GIB // 2, 2000 << 40)]
    assert shown == ["0 B", "1,023 B", "1.5 KiB", "5.0 MiB", "1.50 GiB", "2,000.00 TiB"]
