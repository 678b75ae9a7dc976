"""What `status` and `list` tell."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from jobs import finalize
from jobs.records import DeviceTime, WorkerStatus
from jobs.states import JobState
from tests.support.command_line import GOOD, CommandLine, answer_all
from tests.support.played_job import MODEL, PlayedJob

pytestmark = pytest.mark.quick


def test_status_tells_what_the_start_of_a_worker_is_at(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)
    with cli.store() as store:
        loading = WorkerStatus("starting", "loading weights 60%")
        store.register_worker("gpu-7:4711:0f", MODEL, 4, "0.1.0", loading)

    assert re.search(
        r"^workers +1 alive, starting: loading weights 60%$", cli("status", job_id)[0], re.MULTILINE
    )
    assert "gpu-7:4711:0f: loading weights 60%" in cli("workers")[0]


def test_status_tells_what_a_job_took_of_devices(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)
    with cli.store() as store:
        PlayedJob(store, cli.storage, job_id, device=DeviceTime(4.5, 4.5)).finish_all()
        finalize.drive(store, cli.storage, "worker")

    used = r"^GPU-seconds +4.5; 12k tokens per GPU-hour$"
    assert re.search(used, cli("status", job_id)[0], re.MULTILINE)
    shown = {"seconds": 4.5, "gpu_seconds": 4.5, "tokens_per_hour": 12000}
    assert cli.json("status", job_id)["device"] == shown
    assert cli.json("list")[0]["device"] == shown


def test_status_as_json_has_the_documented_shape(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD, "bad")
    answer_all(cli, job_id, failing={1})

    status = cli.json("status", job_id[:12])

    times = {name: status.pop(name) for name in list(status) if name.endswith("_at")}
    assert status == {
        "id": job_id,
        "name": None,
        "state": "completed",
        "model": "the-model",
        "input": str(cli.home / "rows.jsonl"),
        "version": 1,
        "published_version": 1,
        "output": str(cli.storage.job(job_id).at("v1")),
        "rows": {"total": 4, "completed": 2, "failed": 2, "cancelled": 0, "expired": 0},
        "tokens": {"prompt": 12, "cached": 4, "completion": 6},
        "device": {"seconds": 0.0, "gpu_seconds": 0.0, "tokens_per_hour": None},
        "chunks": {"total": 1, "left": 0, "running": 0, "done": 1},
        "workers_alive": 0,
        "seed": status["seed"],
        "fingerprint": status["fingerprint"],
        "idempotency_key": None,
        "priority": 0,
        "waiting_for": None,
        "stop_reason": None,
        "notify": [],
        "notifications": [],
        "error": None,
    }
    assert {name for name, value in times.items() if value} == {
        "created_at",
        "started_at",
        "finalizing_at",
        "finished_at",
    }
    assert {name for name, value in times.items() if not value} == {
        "deadline_at",
        "paused_at",
        "cancel_requested_at",
    }


def test_status_for_people_names_state_rows_and_output(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD, options=("--name", "[red]tickets"))
    answer_all(cli, job_id, failing={1})

    out, _ = cli("status", job_id, "--watch")

    assert job_id in out
    assert "[red]tickets" in out  # no markup
    assert re.search(r"state +completed", out)
    assert re.search(r"rows +3 of 3 done", out)
    assert re.search(r"failed +1", out)
    assert str(cli.storage.job(job_id).at("v1")) in out
    assert "\x1b" not in out


def test_list_is_newest_first_and_filters_by_state(cli: CommandLine) -> None:
    first, second = cli.submit(*GOOD), cli.submit(*GOOD)
    answer_all(cli, first)

    assert [job["id"] for job in cli.json("list")] == [second, first]
    assert [job["id"] for job in cli.json("list", "--limit", "1")] == [second]
    with cli.store() as store:
        states = {job_id: store.job(job_id).state for job_id in (first, second)}
    for state in JobState:
        found = [job["id"] for job in cli.json("list", "--state", state.value)]
        assert found == [job_id for job_id in (second, first) if states[job_id] is state]
    out, _ = cli("list")
    assert out.index(second) < out.index(first)


def test_list_of_a_model_a_name_and_a_time(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(*options: str) -> list[str]:
        return [job["id"] for job in cli.json("list", *options)]

    monkeypatch.chdir(tmp_path)
    row = '{"prompt": "a"}\n'
    old = cli.submit(*GOOD, options=("--name", "Nightly 50%_a"))
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "config.json").touch()
    local = cli("submit", "-", "--model", "./llama", stdin=row)[0].strip()
    with closing(sqlite3.connect(cli.home / "pagemill.db")) as connection, connection:
        connection.execute(
            "UPDATE jobs SET created_at = strftime('%Y-%m-%d %H:%M:%f000', 'now', '-3 hours') "
            "WHERE id = ?", (old,),
        )  # fmt: skip

    assert found("--model", "./llama") == [local]
    assert found("--model", "the-model") == [old]
    assert found("--name", "nightly") == [old]
    assert found("--name", "50%_") == [old]
    assert found("--name", "5_%") == []  # no pattern
    assert found("--since", "2h") == [local]
    assert found("--since", "4h") == [local, old]
    assert found("--since", "4h", "--model", "the-model", "--state", "queued") == [old]
    assert cli("list", "--name", "none") == ("", "no such jobs\n")
    _, err = cli("list", "--since", "soon", expect=64)
    assert "--since 'soon' is neither" in err


def test_list_counts_answers_and_rows_that_ended_without_one(cli: CommandLine) -> None:
    cancelled = cli.submit(*GOOD, "bad", options=("--chunk-rows", "1"))
    with cli.store() as store:
        job = PlayedJob(store, cli.storage, cancelled)
        job.finish(job.claim())
    cli("cancel", cancelled)

    out, _ = cli("list")

    head, line = (line.split() for line in out.splitlines())
    assert head == ["id", "state", "rows", "errors", "created", "model"]
    assert line[:4] == [cancelled, "cancelled", "1/4", "3"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", " ".join(line[4:6]))
    assert line[6] == "the-model"


def test_an_empty_list_says_so_beside_stdout(cli: CommandLine) -> None:
    cli("db", "upgrade")
    assert cli("list") == ("", "no jobs\n")
    assert cli.json("list") == []
