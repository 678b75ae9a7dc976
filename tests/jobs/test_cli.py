"""Commands that need no model."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs import finalize
from jobs.errors import StorageUnavailable
from jobs.records import Counts, DeviceTime, WorkerStatus
from jobs.states import JobState
from tests.support.command_line import CommandLine
from tests.support.played_job import MODEL, PlayedJob

pytestmark = pytest.mark.quick

GOOD = [{"prompt": "one", "topic": "a"}, {"prompt": "two"}, {"prompt": "three"}]


def answer_all(cli: CommandLine, job_id: str, failing: set[int] | None = None) -> None:
    """Play the worker until the job has ended."""
    with cli.store() as store:
        PlayedJob(store, cli.storage, job_id, failing or set()).finish_all()
        finalize.drive(store, cli.storage, "worker")


# ---- submit


def test_submit_prints_the_id_alone_and_hints_beside_it(cli: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": "b"\n{"prompt": "c", "temperature": -1}\n')

    model = tmp_path / "the model.gguf"
    model.touch()
    out, err = cli("submit", str(path), "--model", str(model))

    job_id = out.removesuffix("\n")
    assert re.fullmatch(r"job_[2-7a-z]{20}", job_id)
    assert "3 rows in 1 chunk" in err
    assert "2 rows cannot be answered" in err
    assert re.search(r"line 2: .*\[invalid_json\]", err)
    assert re.search(r"line 3: temperature .*\[invalid_parameter\]", err)
    assert f"pagemill status {job_id} --watch" in err
    assert f"pagemill worker --model '{model}' --exit-when-done {job_id}\n" in err
    assert "Warning" not in err


def test_one_refused_row_is_spoken_of_as_one(cli: CommandLine) -> None:
    _, err = cli("submit", "-", "--model", "m", stdin='{"prompt": "a"}\nbad\n')

    assert "1 row cannot be answered and will be an error row:" in err


def test_the_options_of_submit_reach_the_job(cli: CommandLine, tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    template.write_text("About {{ topic }}")
    job_id = cli.submit(
        {"topic": "cats"}, {"topic": "dogs"},
        options=(
            "--name", "pets", "--system", "Be brief.", "--template", str(template),
            "--limit", "1", "--seed", "5", "--priority", "3", "--deadline", "8h",
            "--max-tokens", "9", "--temperature", "0.5", "--top-k", "4", "--top-p", "0.9",
            "--stop", "A", "--stop", "B", "--ignore-eos", "--chunk-rows", "7", "--format", "jsonl",
            "--row-timeout", "90",
        ),
    )  # fmt: skip

    with cli.store() as store:
        job = store.job(job_id)
    assert (job.name, job.seed, job.priority, job.total_rows) == ("pets", 5, 3, 1)
    assert job.options["sampling"] == {
        "max_tokens": 9,
        "temperature": 0.5,
        "top_k": 4,
        "top_p": 0.9,
        "stop": ["A", "B"],
        "ignore_eos": True,
    }
    assert job.options["system"] == "Be brief."
    assert job.options["template"] == "About {{ topic }}"
    assert job.options["chunk_rows"] == 7
    assert job.options["row_timeout"] == 90.0
    assert job.deadline_at is not None
    assert abs((job.deadline_at - job.created_at).total_seconds() - 8 * 3600) < 60


def test_options_that_were_not_given_leave_the_defaults(cli: CommandLine) -> None:
    with cli.store() as store:
        job_id = cli.submit(*GOOD)
        job = store.job(job_id)

    assert job.options["sampling"] == {}
    assert job.options["row_timeout"] is None
    assert job.deadline_at is None


def test_rows_come_from_stdin(cli: CommandLine) -> None:
    out, _ = cli("submit", "-", "--model", "m", stdin='{"prompt": "a"}\n')

    assert cli.json("status", out.strip())["rows"]["total"] == 1


def test_a_local_model_is_named_by_its_absolute_path(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").touch()
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n')
    monkeypatch.chdir(tmp_path)

    out, _ = cli("submit", "in.jsonl", "--model", "model")

    assert cli.json("status", out.strip())["model"] == str(tmp_path / "model")


def test_a_hub_id_is_no_path(cli: CommandLine) -> None:
    out, _ = cli("submit", "-", "--model", "org/model", stdin='{"prompt": "a"}\n')

    assert cli.json("status", out.strip())["model"] == "org/model"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["submit", "none.jsonl", "--model", "m"], 65, "none.jsonl"),
        (["submit", "-", "--model", "m"], 65, "stdin is empty"),
        (["submit", "-", "--model", "m", "--deadline", "soon"], 64, "--deadline 'soon'"),
        (["submit", "-", "--model", "m", "--template", "none"], 64, "--template none"),
        (["submit", "-", "--model", "m", "--temperature", "-1"], 64, "temperature"),
        (["submit", "-", "--model", "m", "--limit", "0"], 64, "limit is 0"),
        (["submit", "-"], 64, "--model"),
        (["status"], 64, "ID"),
        (["nonsense"], 64, "nonsense"),
        (["list", "--state", "lost"], 64, "lost"),
        (["status", "job_nonsense"], 66, "job_nonsense"),
        (["results", "job_nonsense", "--partial", "--version", "1"], 64, "--partial"),
    ],
)
def test_errors_are_one_sentence_and_a_code(
    cli: CommandLine, arguments: list[str], code: int, sentence: str
) -> None:
    cli("db", "upgrade")

    out, err = cli(*arguments, expect=code, stdin="")

    assert out == ""
    assert err.startswith("Error: ")
    assert sentence in err
    assert "Traceback" not in err


@pytest.mark.parametrize("how", ["option", "environment"])
def test_debug_shows_the_traceback(
    cli: CommandLine, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "environment":
        monkeypatch.setenv("PAGEMILL_DEBUG", "1")
    options = ["--debug"] if how == "option" else []

    _, err = cli(*options, "submit", "none.jsonl", "--model", "m", expect=65)

    assert "Traceback" in err
    assert "InputError" in err


def test_a_refused_file_leaves_nothing_behind(cli: CommandLine) -> None:
    cli("submit", "-", "--model", "m", stdin="nonsense\n", expect=65)

    assert not list(cli.storage.root.glob("job_*"))
    assert cli.json("list") == []


def test_a_job_that_could_not_be_inserted_leaves_no_folder(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jobs.errors import DatabaseError
    from jobs.store import Store

    def refuse(self: Store, job: object) -> None:
        raise DatabaseError("the database is full")

    monkeypatch.setattr(Store, "insert_job", refuse)
    cli("submit", "-", "--model", "m", stdin='{"prompt": "a"}\n', expect=69)

    assert not list(cli.storage.root.glob("job_*"))


# ---- status, list, wait


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


@pytest.mark.parametrize(
    ("failing", "code", "sentence"), [(set(), 0, "3 of 3 rows"), ({2}, 1, "1 with errors")]
)
def test_wait_ends_with_what_became_of_the_rows(
    cli: CommandLine, failing: set[int], code: int, sentence: str
) -> None:
    job_id = cli.submit(*GOOD)
    answer_all(cli, job_id, failing)

    out, err = cli("wait", job_id, expect=code)

    assert out == ""
    assert sentence in err


def test_wait_without_the_exit_status_tells_only_that_it_has_ended(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)
    cli("wait", job_id, "--no-exit-status", "--timeout", "0.1", expect=124)
    answer_all(cli, job_id, {2})

    _, err = cli("wait", job_id, "--no-exit-status")
    assert "1 with errors" in err
    cli("wait", job_id, "--exit-status", expect=1)


def test_wait_for_a_failed_job(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)
    with cli.store() as store:
        store.fail_job(job_id, "model_unavailable", "there is no such model")

    _, err = cli("wait", job_id, expect=1)

    assert "there is no such model" in err


def test_wait_gives_up_after_its_timeout(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)

    _, err = cli("wait", job_id, "--timeout", "0.1", expect=124)

    assert "not ended within 0.1 s" in err


def test_wait_finishes_what_needs_no_worker(cli: CommandLine) -> None:
    """All rows are answered, and the worker died before it finalized."""
    job_id = cli.submit(*GOOD)
    with cli.store() as store:
        PlayedJob(store, cli.storage, job_id).finish_all()

    cli("wait", job_id, "--timeout", "30")

    assert cli.json("status", job_id)["state"] == "completed"


def test_wait_expires_an_overdue_job_without_a_worker(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD, options=("--deadline", "0.01s"))

    _, err = cli("wait", job_id, "--timeout", "30", expect=2)

    assert "expired" in err


# ---- results, errors


def test_results_go_to_stdout_as_jsonl(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD, "bad")
    answer_all(cli, job_id)

    out, _ = cli("results", job_id)

    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["row_index"] for row in rows] == [0, 1, 2, 3]
    assert rows[0]["text"] == "answer 0"
    assert rows[0]["input"] == {"topic": "a"}
    assert rows[3]["error"]["code"] == "invalid_json"


@pytest.mark.parametrize(
    ("name", "options", "parquet"),
    [
        ("a.parquet", [], True),
        ("a.jsonl", [], False),
        ("a", [], True),
        ("a", ["--format", "jsonl"], False),
        ("a.out", ["--format", "jsonl"], False),
        ("a.jsonl", ["--format", "parquet"], True),
    ],
)
def test_results_go_to_a_file_in_the_format_of_its_name(
    cli: CommandLine, tmp_path: Path, name: str, options: list[str], parquet: bool
) -> None:
    job_id = cli.submit(*GOOD)
    answer_all(cli, job_id)
    path = tmp_path / name

    out, err = cli("results", job_id, "-o", str(path), *options)

    assert out == ""
    assert "3 rows in" in err
    rows = (
        pq.read_table(path).to_pylist()
        if parquet
        else [json.loads(line) for line in path.read_text().splitlines()]
    )
    assert [row["text"] for row in rows] == ["answer 0", "answer 1", "answer 2"]


def test_results_before_the_end_need_partial(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD, options=("--chunk-rows", "1"))
    with cli.store() as store:
        job = PlayedJob(store, cli.storage, job_id)
        job.finish(job.claim())

    _, err = cli("results", job_id, expect=75)
    assert "--partial" in err
    out, err = cli("results", job_id, "--partial")
    assert len(out.splitlines()) == 1
    assert err == ""


def test_partial_results_without_a_row_say_so(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)

    assert cli("results", job_id, "--partial") == (
        "",
        f"job {job_id} (queued) has no rows yet\n",
    )


def test_results_while_a_retry_runs_say_that_they_are_of_the_version_before(
    cli: CommandLine,
) -> None:
    job_id = cli.submit(*GOOD)
    answer_all(cli, job_id, failing={1})
    cli("retry", job_id)

    out, err = cli("results", job_id)

    assert len(out.splitlines()) == 3
    assert "works on version 2" in err
    answer_all(cli, job_id)
    versions = [cli("results", job_id, "--version", v)[0].splitlines()[1] for v in "12"]
    assert [json.loads(row)["text"] for row in versions] == [None, "answer 1"]


def test_errors_are_grouped_by_code(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD, "bad", {"prompt": "x", "top_p": 2}, *["worse"] * 25)

    out, _ = cli("errors", job_id)

    assert "invalid_json: 26 rows\n  line 4, row 3: " in out
    assert "… and 6 more" in out
    assert "invalid_parameter: 1 row\n  line 5, row 4 (top_p): top_p " in out
    assert out.index("invalid_json") < out.index("invalid_parameter")


def test_errors_as_json_list_every_row(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD, "bad", {"prompt": "x", "top_p": 2, "custom_id": "five"})
    answer_all(cli, job_id, failing={1})

    found = cli.json("errors", job_id)

    assert [(row["row_index"], row["line"], row["code"]) for row in found] == [
        (1, 2, "nan_logits"),
        (3, 4, "invalid_json"),
        (4, 5, "invalid_parameter"),
    ]
    assert found[2]["custom_id"] == "five"
    assert found[2]["field"] == "top_p"
    assert set(found[0]) == {"row_index", "custom_id", "code", "message", "line", "field"}


def test_errors_of_some_codes_and_so_many_of_each(cli: CommandLine) -> None:
    bad = {"prompt": "x", "top_p": 2, "custom_id": "five"}
    job_id = cli.submit(*GOOD, *["bad"] * 3, bad, {"prompt": 1})

    out, _ = cli("errors", job_id, "--code", "invalid_json", "--limit", "1")
    assert len(out.splitlines()) == 3
    assert out.startswith("invalid_json: 3 rows\n  line 4, row 3: ")
    assert out.splitlines()[-1].startswith("  … and 2 more")

    counts, _ = cli("errors", job_id, "--limit", "0")
    assert counts == "invalid_json: 3 rows\ninvalid_parameter: 1 row\nwrong_type: 1 row\n"

    options = ("--code", "invalid_parameter", "--code", "wrong_type")
    both, _ = cli("errors", job_id, *options)
    assert "line 7, row 6, custom_id five (top_p): " in both
    assert "invalid_json" not in both
    assert [row["line"] for row in cli.json("errors", job_id, *options)] == [7, 8]
    assert [row["line"] for row in cli.json("errors", job_id, "--limit", "1")] == [4, 7, 8]

    out, err = cli("errors", job_id, "--code", "nan_logits")
    assert out == ""
    assert f"job {job_id} (queued) has no rows with errors of code nan_logits" in err


def test_errors_as_json_by_code(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD, *["bad"] * 25)

    (group,) = cli.json("errors", job_id, "--by-code")

    assert (group["code"], group["rows"], len(group["examples"])) == ("invalid_json", 25, 20)
    assert group["examples"] == cli.json("errors", job_id)[:20]
    (group,) = cli.json("errors", job_id, "--by-code", "--limit", "0")
    assert group == {"code": "invalid_json", "rows": 25, "examples": []}
    _, err = cli("errors", job_id, "--by-code", expect=64)
    assert "--by-code is for --json" in err


def test_a_job_without_errors_lists_none(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)

    assert cli.json("errors", job_id) == []
    out, err = cli("errors", job_id)
    assert out == ""
    assert "no rows with errors" in err


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_errors_of_a_job_that_failed_as_a_whole_say_why(
    cli: CommandLine, options: list[str]
) -> None:
    job_id = cli.submit(*GOOD, "bad")
    with cli.store() as store:
        store.fail_job(job_id, "model_unavailable", "there is no such model")

    out, err = cli("errors", job_id, *options)

    assert f"job {job_id} failed as a whole: there is no such model [model_unavailable]" in err
    assert "invalid_json" in out


def test_results_as_csv(cli: CommandLine, tmp_path: Path) -> None:
    job_id = cli.submit({"prompt": "a", "topic": "x, y"}, "bad")
    answer_all(cli, job_id)
    path = tmp_path / "answers.csv"

    cli("results", job_id, "-o", str(path))

    first, second = csv.DictReader(io.StringIO(path.read_text("utf-8"), newline=""))
    assert (first["text"], first["error.code"]) == ("answer 0", "")
    assert json.loads(first["input"]) == {"topic": "x, y"}
    assert (second["text"], second["error.code"], second["error.line"]) == ("", "invalid_json", "2")
    assert cli("results", job_id, "--format", "csv")[0] == path.read_text("utf-8")


# ---- cancel, retry


def test_cancel_without_a_worker_ends_the_job_at_once_and_is_idempotent(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)

    for _ in range(2):
        _, err = cli("cancel", job_id)
        assert "cancelled" in err
    assert cli.json("status", job_id)["state"] == "cancelled"
    assert cli.json("status", job_id)["rows"]["cancelled"] == 3
    cli("wait", job_id, expect=2)


def test_cancel_leaves_running_chunks_to_their_worker(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)
    with cli.store() as store:
        lease = PlayedJob(store, cli.storage, job_id).claim()

        _, err = cli("cancel", job_id)

        assert "is being cancelled" in err
        assert cli.json("status", job_id)["state"] == "cancelling"
        store.release_chunk(lease, Counts())
    cli("wait", job_id, "--timeout", "30", expect=2)


def test_a_cancel_that_cannot_be_published_yet_says_what_it_waits_for(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StorageUnavailable("the disk is full", "room in the storage")

    job_id = cli.submit(*GOOD)
    with monkeypatch.context() as full:
        full.setattr(finalize, "merge_window", refuse)
        _, err = cli("cancel", job_id)
        assert "is cancelled; what was answered is still to be published, and waits for room" in err
        assert "workers hand" not in err
        _, err = cli("delete", job_id, "--yes", expect=75)
        assert f"is finalizing; wait until it has ended (`pagemill wait {job_id}`)" in err
        assert "pagemill cancel" not in err


def test_a_completed_job_cannot_be_cancelled(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)
    answer_all(cli, job_id)

    _, err = cli("cancel", job_id, expect=75)

    assert "is completed" in err


def test_retry_prints_the_id_and_queues_the_failed_rows(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)
    answer_all(cli, job_id, failing={0, 2})

    out, err = cli("retry", job_id)

    assert out == f"{job_id}\n"
    assert "2 rows queued again, for version 2" in err
    assert f"pagemill worker --model the-model --exit-when-done {job_id}\n" in err
    answer_all(cli, job_id)
    cli("wait", job_id)
    assert cli.json("status", job_id)["published_version"] == 2


def test_retry_of_a_job_without_errors(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)
    answer_all(cli, job_id)

    _, err = cli("retry", job_id, expect=75)

    assert "nothing to retry" in err


# ---- the database


def test_another_database_is_not_touched_without_being_asked(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEMILL_DATABASE_URL", f"sqlite:///{tmp_path / 'other.db'}")

    for command in (["submit", "-", "--model", "m"], ["worker", "--model", "m"]):
        _, err = cli(*command, stdin='{"prompt": "a"}\n', expect=69)
        assert "pagemill db upgrade" in err
    assert not (tmp_path / "other.db").exists()
    cli("db", "check", expect=69)
    cli("db", "upgrade")
    cli("db", "check")
    cli("submit", "-", "--model", "m", stdin='{"prompt": "a"}\n')


def test_the_worker_takes_the_place_of_the_command(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, arguments: seen.append([path, *arguments]))

    cli(
        "worker", "--model", "m", "--concurrency", "2", "--dtype", "float32", "--device", "cpu",
        "--block-size", "8", "--num-blocks", "9", "--max-model-len", "10", "--max-num-seqs", "11",
        "--max-num-batched-tokens", "12", "--no-prefix-cache", "--threads", "1",
        "--gpu-memory-utilization", "0.5", "--swap-space", "1.5", "--watermark", "0.05",
        "--deterministic", "--no-overlap", "--cuda-graphs",
    )  # fmt: skip

    from worker.options import WorkerOptions

    assert seen[0][:5] == [sys.executable, sys.executable, "-P", "-m", "worker"]
    options = WorkerOptions.parse(seen[0][5:], {"PAGEMILL_HOME": str(cli.home)})
    assert (options.model, options.concurrency) == ("m", 2)
    assert options.engine == {
        "model": "m",
        "dtype": "float32",
        "device": "cpu",
        "block_size": 8,
        "num_blocks": 9,
        "max_model_len": 10,
        "max_num_seqs": 11,
        "max_num_batched_tokens": 12,
        "threads": 1,
        "gpu_memory_utilization": 0.5,
        "swap_space": 1.5,
        "watermark": 0.05,
        "enable_prefix_caching": False,
        "deterministic": True,
        "overlap": False,
        "cuda_graphs": True,
    }


# ---- help


@pytest.mark.parametrize("command", [[], ["db"]])
def test_commands_without_a_command_show_their_help(cli: CommandLine, command: list[str]) -> None:
    assert cli(*command) == cli(*command, "--help")


def test_version(cli: CommandLine) -> None:
    assert cli("--version")[0] == "pagemill 0.1.0\n"


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from jobs.cli.app import app\n"
        "assert CliRunner().invoke(app, ['run', '--help']).exit_code == 0\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    heavy = {"torch", "transformers", "pyarrow", "sqlalchemy", "celery", "alembic", "engine"}
    assert heavy.isdisjoint(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["shell-init", "ksh"], "'SHELL': 'ksh' is not one of 'bash', 'zsh', 'fish'."),
        (["list", "--state", "odd"], "'--state': 'odd' is not one of 'validating', "),
        (
            ["beat", "--log-format", "xml"],
            "'--log-format' (env var: 'PAGEMILL_LOG_FORMAT'): 'xml' is not one of ",
        ),
        (["list", "--state", "x: Value error, y"], "'--state': 'x: Value error, y' is not one of "),
    ],
)
def test_a_word_that_is_not_one_of_a_few_is_told_in_plain_words(
    cli: CommandLine, arguments: list[str], sentence: str
) -> None:
    _, err = cli(*arguments, expect=64)

    assert err.startswith(f"Error: Invalid value for {sentence}")
