"""The default database before anything was submitted, and one of an older pagemill."""

from __future__ import annotations

from pathlib import Path

import alembic.command
import pytest

import jobs
from jobs.database import Database
from tests.support.command_line import CommandLine
from tests.support.migrating import config

quick = pytest.mark.quick

LOOKING = [
    (["list"], 0, "no jobs"),
    (["workers"], 0, "no worker is alive"),
    (["notifications"], 0, "no notifications"),
    (["eval", "list"], 0, "no evaluations"),
    (["schedule", "list"], 0, "no schedules"),
    (["report"], 66, "no evaluation has ended yet"),
    (["eval", "show", "eval_abcdefgh"], 66, "there is no evaluation 'eval_abcdefgh'"),
    (["schedule", "show", "nightly"], 66, "there is no schedule nightly"),
    *(
        ([name, "job_abcdefgh"], 66, "there is no job 'job_abcdefgh'")
        for name in ("status", "wait", "results", "errors", "events", "tail", "logs", "cancel",
                     "pause", "resume", "retry", "delete")
    ),
]  # fmt: skip


@quick
@pytest.mark.parametrize(("command", "code", "said"), LOOKING, ids=lambda value: str(value))
def test_in_a_fresh_home_there_is_nothing_and_looking_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], code: int, said: str
) -> None:
    home = tmp_path / "home"
    cli = CommandLine(home, monkeypatch)

    out, err = cli(*command, expect=code)

    first, *rest = err.splitlines()
    assert first == (
        f"Nothing was submitted yet: there is no database sqlite:///{home}/pagemill.db; if it is "
        "elsewhere, PAGEMILL_HOME says where"
    )
    assert said in "\n".join(rest)
    assert out == ""
    assert not home.exists()


@quick
def test_who_begins_work_hears_of_misspelled_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = CommandLine(tmp_path / "home", monkeypatch)
    monkeypatch.setenv("PAGEMILL_DATABSE_URL", "postgresql://me:secret@host/d")
    monkeypatch.setenv("PAGEMILL_QQQQQQQQQQQQQQQQ", "1")
    (tmp_path / "a.jsonl").write_text('{"prompt": "a"}')

    _, err = cli("submit", str(tmp_path / "a.jsonl"), "--model", "m")
    assert err.splitlines()[:2] == [
        "Warning: unknown variable PAGEMILL_DATABSE_URL; did you mean PAGEMILL_DATABASE_URL?",
        "Warning: unknown variable PAGEMILL_QQQQQQQQQQQQQQQQ; `pagemill doctor` tells more",
    ]
    _, err = cli("worker", "--model", "m", "--exit-when-done", "x", expect=66)
    assert "unknown variable PAGEMILL_DATABSE_URL" in err
    assert "unknown variable" not in cli("list")[1]


@quick
def test_of_a_fresh_home_scripts_read_empty_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = CommandLine(tmp_path / "home", monkeypatch)
    for command in (["list"], ["workers"], ["notifications"], ["eval", "list"]):
        assert cli.json(*command) == []
    assert jobs.list_jobs() == []


@quick
def test_without_a_database_nothing_is_taken_for_garbage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be lost, and the storage full of answers."""
    cli = CommandLine(tmp_path / "home", monkeypatch)
    _, err = cli("gc", expect=69)
    assert "there is no database" in err


def test_the_default_database_is_made_at_submit_and_upgraded_by_whoever_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = CommandLine(tmp_path / "home", monkeypatch)
    cli.submit({"prompt": "a"})
    assert len(cli.json("list")) == 1
    database = Database(cli.settings.database_url)
    with database.begin() as connection:
        alembic.command.downgrade(config(connection), "0005")
    database.close()
    cli("db", "check", expect=69)

    assert len(cli.json("list")) == 1

    cli("db", "check")
