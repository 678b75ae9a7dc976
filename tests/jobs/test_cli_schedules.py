"""`pagemill schedule`: on a real database, with rows that a played worker answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs import finalize
from jobs.cli import completion
from jobs.database import Database
from jobs.doctor.database_check import check_database
from jobs.doctor.findings import Level
from jobs.schedules.ticking import tick
from tests.support.command_line import CommandLine
from tests.support.deployment import wait_for
from tests.support.played_evaluation import ROWS, Answering, right, right_but
from tests.support.played_job import MODEL
from tests.support.schedules import make_due

quick = pytest.mark.quick


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path) -> CommandLine:
    made = CommandLine(tmp_path / "home", monkeypatch).with_tables(migrated_sqlite)
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "rows.jsonl")
    return made


def write(path: Path, number: int = 20) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS[:number]))


def add(cli: CommandLine, *more: str, name: str = "nightly", expect: int = 0) -> tuple[str, str]:
    base = ("rows.jsonl", "--model", MODEL, "--scorer", "exact")
    when = () if "--cron" in more else ("--cron", "0 2 * * *")
    return cli("schedule", "add", name, *base, *when, *more, expect=expect)


# ---- add


@quick
def test_a_schedule_says_when_it_is_due(cli: CommandLine, tmp_path: Path) -> None:
    before = datetime.now(UTC)
    out, err = add(cli, "--timezone", "Asia/Kolkata", "--slice", "topic", "--max-tokens", "4")
    assert out.startswith("schedule nightly is due next at 20")
    assert "02:00 Asia/Kolkata (20" in out
    assert "20:30 UTC)" in out
    assert "20 rows in 1 file; data set " in err
    (found,) = cli.json("schedule", "list")
    due_at = datetime.fromisoformat(found["next_due_at"])
    assert (due_at.hour, due_at.minute) == (20, 30)
    assert before < due_at <= datetime.now(UTC) + timedelta(days=1)
    assert (found["cron"], found["timezone"]) == ("0 2 * * *", "Asia/Kolkata")
    assert (found["catch_up"], found["overlap"]) == ("latest", "skip")
    assert (found["paused_at"], len(found["dataset_hash"])) == (None, 64)
    spec = found["spec"]
    assert spec["inputs"] == [str(tmp_path / "rows.jsonl")]
    assert (spec["slices"], spec["submit"]) == (["topic"], {"max_tokens": 4})


@quick
def test_inputs_may_be_options_and_patterns(cli: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "evals"
    folder.mkdir()
    write(folder / "a.jsonl", 3)
    write(folder / "b.jsonl", 4)
    options = ("--input", "evals/*.jsonl", "--model", MODEL, "--scorer", "exact")
    shown, err = cli("schedule", "add", "x", *options, "--cron", "@daily", "--json")
    assert json.loads(shown)["spec"]["inputs"] == [str(folder / "*.jsonl")]
    assert "7 rows in 2 files" in err


@quick
def test_rows_may_change_if_that_is_said(cli: CommandLine) -> None:
    add(cli, "--on-change", "follow")
    (found,) = cli.json("schedule", "list")
    assert found["dataset_hash"] is None
    assert found["spec"]["dataset"] == "follow"


@quick
def test_a_model_that_is_a_path_is_made_absolute(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEMILL_DATABASE_URL", cli.settings.database_url)  # others may reach it
    options = ("--model", "./models/m", "--scorer", "exact", "--cron", "@daily", "--json")
    shown, err = cli("schedule", "add", "x", "rows.jsonl", *options)
    assert json.loads(shown)["spec"]["model"] == str(tmp_path / "models" / "m")
    assert f"Warning: there is no model {tmp_path}/models/m on this machine" in err


@quick
@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--cron", "0 25 * * *"], 64, "its hour is '25'"),
        (["--cron", "0 0 31 2 *"], 64, "never comes"),
        (["--timezone", "Europe/Berln"], 64, "did you mean Europe/Berlin?"),
        (["--target", "nothing"], 65, "has a column 'nothing'"),
        (["--slice", "nothing"], 65, "has a column 'nothing' to slice by"),
        (["--scorer", "nothing"], 64, "'nothing', which is no scorer"),
        (["--gate", "exact is 1"], 64, "Error: --gate is 'exact is 1', which is no rule"),
        (["--gate", "f1>=0.5"], 64, "about 'f1', which is no scorer of this evaluation"),
        (["--temperature", "-1"], 64, "temperature is -1"),
        (["--chunk-rows", "9999"], 64, "chunk_rows is 9999; it must be from 1 to 256"),
        (["--deadline", "2030-01-01"], 64, "is no duration"),
        (["--input", "nothing.jsonl"], 65, "there is no file"),
        (["--input", "nothing/*.jsonl"], 65, "no file fits the pattern"),
        (["--input", "-"], 65, "cannot read stdin"),
        (["--catch-up", "all", "--overlap", "skip"], 64, "do not go together"),
        (["--notify", "ftp://x"], 64, "must be a URL"),
    ],
)
def test_what_cannot_work_is_refused_at_once(
    cli: CommandLine, options: list[str], code: int, said: str
) -> None:
    _, err = add(cli, *options, expect=code)
    assert said in err
    assert cli.json("schedule", "list") == []


@quick
def test_a_name_that_is_none(cli: CommandLine) -> None:
    assert "must be letters, digits" in add(cli, name="a/b", expect=64)[1]
    assert "must be letters, digits" in add(cli, name="a" * 65, expect=64)[1]


@quick
def test_a_name_that_is_there(cli: CommandLine) -> None:
    add(cli)
    assert "give --replace to put another" in add(cli, "--cron", "@hourly", expect=75)[1]
    add(cli, "--cron", "@hourly", "--replace", "--paused", "--catch-up", "all")
    (found,) = cli.json("schedule", "list")
    assert (found["cron"], found["overlap"]) == ("@hourly", "wait")
    assert (found["next_due_at"], found["paused_at"] is None) == (None, False)


# ---- list, show, pause, resume, remove


@quick
def test_without_schedules(cli: CommandLine) -> None:
    assert cli("schedule", "list") == ("", "no schedules\n")
    assert cli.json("schedule", "list") == []


@quick
@pytest.mark.parametrize("command", ["show", "pause", "resume", "run-now", "remove"])
def test_one_that_is_not_there(cli: CommandLine, command: str) -> None:
    assert "there is no schedule none" in cli("schedule", command, "none", expect=66)[1]


@quick
def test_it_is_shown(cli: CommandLine) -> None:
    hook = "https://hooks.example/secret"
    asked = ("--temperature", "0", "--stop", "a b", "--scorer", "numeric:tolerance=0.1,as=price")
    add(cli, "--timezone", "Europe/Berlin", "--gate", "exact>=0.5", "--notify", hook, *asked)
    out, err = cli("schedule", "show", "nightly")
    lines = out.splitlines()
    assert "cron      0 2 * * * (Europe/Berlin)" in lines
    assert "gate      exact>=0.5; 0 rows may be missing" in lines
    assert 'options   stop=["a b"], temperature=0.0, seed=0' in lines
    assert "scorers   exact, numeric:tolerance=0.1,as=price" in lines
    assert sum("02:00 Europe/Berlin, here 20" in line for line in lines) == 5
    assert "secret" not in out
    assert "hooks.example" in out
    assert "it has no evaluations yet" in err
    shape = cli.json("schedule", "show", "nightly")
    assert len(shape["next_times"]) == 5
    assert shape["next_times"][0] == shape["next_due_at"]
    assert shape["evaluations"] == []
    assert shape["spec"]["notify"] == ["https://hooks.example/***"]
    cli("schedule", "run-now", "nightly")
    assert "secret" not in json.dumps(cli.json("schedule", "show", "nightly"))
    shown = cli("schedule", "list")[0]
    assert "Europe/Berlin" in shown
    assert " 02:00 " in shown


@quick
def test_a_pause(cli: CommandLine) -> None:
    add(cli)
    out, err = cli("schedule", "pause", "nightly", "--json")
    assert json.loads(out)["paused_at"] is not None
    assert "schedule nightly is paused" in err
    assert cli("schedule", "list")[0].splitlines()[1].rstrip().endswith("paused")
    assert "since 20" in cli("schedule", "show", "nightly")[0]
    out, err = cli("schedule", "resume", "nightly", "--json")
    assert (json.loads(out)["paused_at"], json.loads(out)["next_due_at"] is None) == (None, False)
    assert "is due next at" in err


@quick
def test_evaluations_stay_when_it_is_removed(cli: CommandLine) -> None:
    add(cli)
    evaluation_id = cli("schedule", "run-now", "nightly")[0].strip()
    out, err = cli("schedule", "remove", "nightly", "--json")
    assert json.loads(out)["name"] == "nightly"
    assert "pagemill eval list nightly" in err
    assert cli.json("schedule", "list") == []
    assert [found["id"] for found in cli.json("eval", "list", "nightly")] == [evaluation_id]


@quick
def test_names_are_completed(cli: CommandLine) -> None:
    add(cli)
    add(cli, name="other")
    assert completion.schedule_names("n") == [("nightly", "0 2 * * * UTC")]


# ---- its evaluations


@contextmanager
def answering(cli: CommandLine, says: Callable[[int], str | None]) -> Iterator[None]:
    """A worker that answers the first job that there is, unless there was none in the block."""
    over = threading.Event()

    def answer() -> None:
        with cli.store() as store:
            wait_for("a job", lambda: over.is_set() or store.list_jobs())
            if over.is_set():
                return
            (job,) = store.list_jobs()
            Answering(store, cli.storage, job.id, says=says).finish_all()
            finalize.drive(store, cli.storage, "f")

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(
    ("says", "code", "verdict"), [(right, 0, "passed"), (right_but(*range(15)), 10, "regressed")]
)
def test_it_is_run_now_and_waited_for(
    cli: CommandLine, says: Callable[[int], str | None], code: int, verdict: str
) -> None:
    add(cli, "--gate", "exact>=0.5")
    with answering(cli, says):
        out, err = cli("schedule", "run-now", "nightly", "--wait", expect=code)
    evaluation_id = out.splitlines()[0]
    assert f"verdict: {verdict}" in out
    assert f"evaluation {evaluation_id} of nightly completed: 20 rows" in err
    shape = cli.json("schedule", "show", "nightly")
    (found,) = shape["evaluations"]
    assert (found["id"], found["trigger"], found["verdict"]) == (evaluation_id, "manual", verdict)
    assert f" {verdict} 20" in cli("schedule", "list")[0]
    assert evaluation_id in cli("schedule", "show", "nightly")[0]


@quick
def test_it_is_run_now_and_not_waited_for(cli: CommandLine) -> None:
    add(cli)
    out, err = cli("schedule", "run-now", "nightly")
    assert f"pagemill eval wait {out.strip()}" in err
    assert "is still pending" in cli("schedule", "run-now", "nightly", expect=75)[1]
    assert (
        "is about --wait" in cli("schedule", "run-now", "nightly", "--timeout", "1", expect=64)[1]
    )
    add(cli, "--overlap", "allow", "--replace")
    shape = json.loads(cli("schedule", "run-now", "nightly", "--json")[0])
    assert (shape["state"], shape["trigger"], shape["name"]) == ("pending", "manual", "nightly")


def test_waiting_may_end_before_it(cli: CommandLine) -> None:
    add(cli)
    command = ("schedule", "run-now", "nightly", "--wait", "--timeout", "0.1")
    assert "it goes on" in cli(*command, expect=124)[1]


@quick
def test_rows_that_changed_fail(cli: CommandLine, tmp_path: Path) -> None:
    add(cli)
    write(tmp_path / "rows.jsonl", 19)
    _, err = cli("schedule", "run-now", "nightly", "--wait", expect=12)
    assert "dataset_changed" in err
    assert "with --on-change follow it takes the rows as they are" in err


@quick
def test_what_is_due_is_of_its_series(cli: CommandLine) -> None:
    add(cli)
    database = Database(cli.settings.database_url)
    with cli.store() as store:
        make_due(database, store.schedule("nightly"), 60)
        assert tick(store) == 1
    database.close()
    (found,) = cli.json("eval", "list", "nightly")
    assert (found["trigger"], found["state"]) == ("cron", "pending")
    assert found["due_at"] is not None


# ---- the doctor


@quick
@pytest.mark.parametrize(("late", "level"), [(1800, Level.OK), (3700, Level.WARNING)])
def test_the_doctor_sees_that_nobody_looks_at_the_clock(
    cli: CommandLine, late: int, level: Level
) -> None:
    add(cli)
    database = Database(cli.settings.database_url)
    with cli.store() as store:
        make_due(database, store.schedule("nightly"), late)
    database.close()
    (found,) = [f for f in check_database(cli.settings) if f.name == "schedules"]
    assert found.level is level
    if level is Level.WARNING:
        assert "nobody has looked at the clock since" in found.found
        assert found.advice == "start `pagemill beat`"


def test_one_that_waits_names_the_one_it_waits_for(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.cli.evaluating.PATIENCE_SECONDS", 0.0)
    add(cli, "--overlap", "wait")
    first, second, third = (cli("schedule", "run-now", "nightly")[0].strip() for _ in range(3))
    _, err = cli("eval", "wait", third, "--timeout", "0.1", expect=124)
    assert f"has not begun: {first}, an earlier one of its schedule, has not ended" in err
    assert second not in err
