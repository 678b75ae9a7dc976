"""`pagemill workers`, and what other commands say where no worker is."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from jobs import finalize
from jobs.cli import why_it_waits
from jobs.records import WorkerStatus
from tests.support.command_line import CommandLine, on_a_terminal
from tests.support.played_job import PlayedJob
from tests.support.still_clock import stand_still

BUSY = WorkerStatus(
    state="ready", device="cuda:0", dtype="bfloat16", chunks_held=3, rows_completed=12345,
    rows_failed=2, running=200, waiting=56, blocks_used=25, blocks_cached=60, blocks_total=100,
    prompt_tokens=1000, cached_tokens=910, generated_tokens=5000, preemptions=1,
    tokens_per_second=4321.4,
)  # fmt: skip
MODEL = "the-model"


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    made = CommandLine(tmp_path / "home", monkeypatch)
    made("db", "upgrade")
    return made


def start(
    cli: CommandLine, id: str, status: WorkerStatus = BUSY, model: str = MODEL, age: float = 0.0
) -> None:
    """A worker that was seen so many seconds ago, an hour after its start."""
    with cli.store() as store:
        store.register_worker(id, model, 4, "0.1.0", WorkerStatus("starting"))
        store.report_worker(id, status)
    with closing(sqlite3.connect(cli.home / "pagemill.db")) as connection, connection:
        for name, seconds in (("seen_at", age), ("started_at", age + 3600)):
            connection.execute(
                f"UPDATE workers SET {name} ="
                " strftime('%Y-%m-%d %H:%M:%f000', 'now', ?) WHERE id = ?",
                (f"-{seconds} seconds", id),
            )


# ---- the list


def test_a_busy_worker_in_a_line(cli: CommandLine) -> None:
    start(cli, "gpu-7:4711:0f")

    out, err = cli("workers")

    head, line = (text.split("  ") for text in out.splitlines())
    assert [name.strip() for name in head if name] == [
        "worker", "model", "state", "device", "chunks", "run/wait", "KV", "tok/s", "cached",
        "rows", "errors", "up", "seen",
    ]  # fmt: skip
    cells = [cell.strip() for cell in line if cell.strip()]
    assert cells[:-1] == [
        "gpu-7:4711:0f", MODEL, "ready", "cuda:0", "3/4", "200/56", "25%", "4,321", "91%",
        "12,345", "2", "1 h 0 min",
    ]  # fmt: skip
    assert cells[-1].endswith(" s")
    assert err == ""


def test_those_that_left_or_were_lost_are_shown_on_demand(cli: CommandLine) -> None:
    start(cli, "host:1:a")
    start(cli, "host:2:b", age=100)
    start(cli, "host:3:c", WorkerStatus("stopped", rows_completed=7), age=5)
    start(cli, "host:4:d", WorkerStatus("failed", "no such\nmodel"))

    assert [worker["id"] for worker in cli.json("workers")] == ["host:1:a"]
    shown = {worker["id"]: worker["state"] for worker in cli.json("workers", "--all")}
    assert shown == {
        "host:1:a": "ready", "host:2:b": "lost", "host:3:c": "stopped", "host:4:d": "failed",
    }  # fmt: skip
    out, _ = cli("workers", "--all")
    lost = next(line for line in out.splitlines() if line.startswith("host:2:b"))
    assert "4,321" not in lost  # what it last said of its speed is not true any more
    assert "12,345" in lost
    assert out.splitlines()[-1] == "host:4:d: no such model"


def test_as_json_it_has_the_documented_shape(cli: CommandLine) -> None:
    start(cli, "gpu-7:4711:0f")

    (worker,) = cli.json("workers")

    times = {name: worker.pop(name) for name in ("started_at", "seen_at")}
    assert worker == {
        "id": "gpu-7:4711:0f", "host": "gpu-7", "pid": 4711, "model": MODEL, "software": "0.1.0",
        "concurrency": 4, "alive": True, "state": "ready", "message": None, "device": "cuda:0",
        "dtype": "bfloat16", "chunks_held": 3, "rows_completed": 12345, "rows_failed": 2,
        "running": 200, "waiting": 56, "blocks_used": 25, "blocks_cached": 60,
        "blocks_total": 100, "prompt_tokens": 1000, "cached_tokens": 910,
        "generated_tokens": 5000, "preemptions": 1, "tokens_per_second": 4321.4,
    }  # fmt: skip
    assert all(value.endswith("+00:00") for value in times.values())


def test_no_workers_are_said_beside_stdout(cli: CommandLine) -> None:
    out, err = cli("workers")
    assert out == ""
    assert "no worker is alive; `pagemill worker --model MODEL` starts one" in err
    assert cli.json("workers") == []
    assert cli("workers", "--all") == ("", "no workers in the last week\n")


def test_a_worker_that_just_starts_has_no_figures(cli: CommandLine) -> None:
    start(cli, "host:1:a", WorkerStatus("starting"))

    out, _ = cli("workers")

    assert out.splitlines()[1].split()[:5] == ["host:1:a", MODEL, "starting", "0/4", "0/0"]


def test_a_narrow_terminal_gets_the_columns_that_matter(cli: CommandLine) -> None:
    start(cli, "a-host-with-a-long-name.example.org:4711:0123abcd", model="/models/" + "m" * 60)
    start(cli, "gpu-2:4711:0123abcd", model="small")
    must = ["worker", "model", "state", "run/wait", "KV", "tok/s", "seen"]

    for columns, more in ((80, 1), (100, 3), (200, 6)):
        head, *lines = on_a_terminal(columns, "workers")
        assert len(lines) == 2
        assert all(len(line) <= columns for line in (head, *lines))
        names = head.split()
        assert [name for name in names if name in must] == must
        assert len(names) == len(must) + more
        for line in lines:
            assert re.search(r" ready .* 200/56 +25% +4,321 .*\d s *$", line)
        assert any(line.startswith("gpu-2:4711:0123abcd") and " small " in line for line in lines)


# ---- a job without a worker


def test_status_tells_of_a_job_that_nobody_serves(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"})
    start(cli, "host:1:a", model="the-modle")

    out, err = cli("status", job_id)

    assert (
        f"no worker of {MODEL} is alive (there are workers of the-modle); start one with "
        f"`pagemill worker --model {MODEL} --exit-when-done {job_id}`"
    ) in out
    assert err == ""
    assert cli.json("status", job_id)["workers_alive"] == 0


def test_status_and_wait_tell_why_the_last_worker_failed(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"})
    start(cli, "host:1:a", WorkerStatus("failed", "no such\nmodel"))

    said = [cli("status", job_id)[0], cli("wait", job_id, "--timeout", "0.1", expect=124)[1]]

    for text in said:
        assert re.search(
            rf"no worker of {MODEL} is alive; the last one failed at \S+ \S+ UTC: no such model; "
            "start one with",
            text,
        )


def test_status_of_a_job_that_is_served(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"})
    start(cli, "host:1:a")

    out, _ = cli("status", job_id)

    assert "1 alive" in out
    assert "no worker" not in out
    assert cli.json("status", job_id)["workers_alive"] == 1


def test_a_job_that_has_ended_needs_no_worker(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"})
    with cli.store() as store:
        PlayedJob(store, cli.storage, job_id).finish_all()
        finalize.drive(store, cli.storage, "worker")

    assert "workers" not in cli("status", job_id)[0]
    assert "no worker" not in cli("wait", job_id)[1]


@pytest.mark.parametrize("patience", [0.0, 60.0])
def test_wait_tells_once_that_nobody_serves_the_job(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    monkeypatch.setattr(why_it_waits, "PATIENCE_SECONDS", patience)
    stand_still(monkeypatch)
    job_id = cli.submit({"prompt": "a"})

    _, err = cli("wait", job_id, "--timeout", "0.8", expect=124)

    said = [line for line in err.splitlines() if f"no worker of {MODEL} is alive; start" in line]
    assert len(said) == (2 if patience == 0 else 1)
    assert said[-1].startswith(f"Job {job_id} has not ended within 0.8 s; no worker of")


def test_wait_is_silent_where_a_worker_is(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(why_it_waits, "PATIENCE_SECONDS", 0.0)
    stand_still(monkeypatch)
    job_id = cli.submit({"prompt": "a"})
    start(cli, "host:1:a")

    _, err = cli("wait", job_id, "--timeout", "0.6", expect=124)

    assert "no worker" not in err
    assert "it goes on" in err


# ---- a job whose workers are busy with another


def busy_with_another(cli: CommandLine) -> tuple[str, str]:
    """A job that takes all slots of the only worker, and one that waits."""
    long = cli.submit({"prompt": "a"})
    with cli.store() as store:
        store.register_worker("host:1:a", MODEL, 1, "0.1.0", WorkerStatus("ready"))
        assert store.claim_chunk("host:1:a", MODEL) is not None
    return long, cli.submit({"prompt": "a"})


def test_status_tells_what_keeps_the_workers_busy(cli: CommandLine) -> None:
    long, waits = busy_with_another(cli)

    slot = f"a free slot: 1 worker is busy with {long}; a job of higher --priority gets the next"
    assert f"waits for          {slot}" in cli("status", waits)[0]
    assert cli.json("status", waits)["waiting_for"].startswith(slot)
    assert "free slot" not in cli("status", long)[0]
    assert cli.json("status", long)["waiting_for"] is None


@pytest.mark.parametrize("patience", [0.0, 60.0])
def test_wait_tells_once_what_keeps_the_workers_busy(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    monkeypatch.setattr(why_it_waits, "PATIENCE_SECONDS", patience)
    stand_still(monkeypatch)
    long, waits = busy_with_another(cli)

    _, err = cli("wait", waits, "--timeout", "0.8", expect=124)

    sentence = f"job {waits} waits for a free slot: 1 worker is busy with {long};"
    said = [line for line in err.splitlines() if sentence in line]
    assert len(said) == (2 if patience == 0 else 1)
    assert said[-1].startswith(f"Job {waits} has not ended within 0.8 s; job")
