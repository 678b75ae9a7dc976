"""`--json`: every command that reads has it, and prints one document and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from jobs import finalize
from jobs.cli.app import app
from jobs.tables import SCHEMA_REVISION
from tests.support.command_line import CommandLine
from tests.support.played_job import PlayedJob

pytestmark = pytest.mark.quick

# What has nothing to tell of but its end, or whose output has a form of its own.
NOT_READING = {
    ("run",),  # answers; `status --json` tells of the job
    ("results",),  # JSONL
    ("eval", "scores"),  # the same
    ("worker",),
    ("beat",),
    ("shell-init",),  # a program for a shell
    ("db", "upgrade"),
}


def leaves(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The commands that do something, by their words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name), command


LEAVES = dict(leaves(get_command(app)))


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_that_reads_has_json(path: tuple[str, ...]) -> None:
    options = {option for parameter in LEAVES[path].params for option in parameter.opts}
    assert ("--json" in options) or (path in NOT_READING)


def test_no_command_is_excused_that_is_not_there() -> None:
    assert LEAVES.keys() >= NOT_READING


def answered(cli: CommandLine, *failing: int) -> str:
    job_id = cli.submit({"prompt": "a"}, {"prompt": "b"})
    with cli.store() as store:
        PlayedJob(store, cli.storage, job_id, set(failing)).finish_all()
        finalize.drive(store, cli.storage, "worker")
    return job_id


def same_as_status(cli: CommandLine, job_id: str, printed: str) -> dict[str, Any]:
    shape: dict[str, Any] = json.loads(printed)
    assert printed.count("\n") == 1
    assert shape == cli.json("status", job_id)
    return shape


def test_what_is_done_to_a_job_tells_how_it_stands(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"})
    for command, paused in (("pause", True), ("resume", False)):
        shape = same_as_status(cli, job_id, cli(command, job_id, "--json")[0])
        assert (shape["paused_at"] is not None) == paused
    shape = same_as_status(cli, job_id, cli("cancel", job_id, "--json")[0])
    assert shape["state"] == "cancelled"
    shape = same_as_status(cli, job_id, cli("retry", job_id, "--json")[0])
    assert (shape["state"], shape["version"]) == ("queued", 2)


def test_wait_tells_how_it_ended_and_how_it_stands_if_not(cli: CommandLine) -> None:
    ended = answered(cli, 1)
    shape = same_as_status(cli, ended, cli("wait", ended, "--json", expect=1)[0])
    assert (shape["state"], shape["rows"]["failed"]) == ("completed", 1)
    open_one = cli.submit({"prompt": "a"})
    printed = cli("wait", open_one, "--json", "--timeout", "0", expect=124)[0]
    assert same_as_status(cli, open_one, printed)["state"] == "queued"


def test_submit_prints_the_job_with_the_rows_that_it_refused(cli: CommandLine) -> None:
    file = cli.home / "rows.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": 5}\n')
    out, said = cli("submit", str(file), "--model", "m", "--json", "--idempotency-key", "k")
    shape = same_as_status(cli, json.loads(out)["id"], out)
    assert shape["state"] == "queued"
    assert (shape["rows"]["total"], shape["rows"]["failed"]) == (2, 1)
    assert f"pagemill status {shape['id']}" in said
    again, _ = cli("submit", str(file), "--model", "m", "--json", "--idempotency-key", "k")
    assert json.loads(again)["id"] == shape["id"]


def test_delete_names_the_jobs_that_it_removed(cli: CommandLine) -> None:
    one, other = answered(cli), answered(cli)
    assert json.loads(cli("delete", one, "--json")[0]) == [{"id": one}]
    assert json.loads(cli("delete", one, other, "--json")[0]) == [{"id": other}]
    assert json.loads(cli("delete", one, "--json")[0]) == []


def test_gc_tells_what_goes_and_why(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEMILL_RETENTION", "0.001s")
    old, deleted = answered(cli), answered(cli)
    with cli.store() as store:
        store.delete_job(deleted)  # by a command that was killed before it removed the files
    expected = [{"id": old, "reason": "retention"}, {"id": deleted, "reason": "deleted"}]
    assert json.loads(cli("gc", "--dry-run", "--json")[0]) == expected
    assert json.loads(cli("gc", "--json")[0]) == expected
    assert json.loads(cli("gc", "--json")[0]) == []


def test_db_check_tells_what_is_wrong(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = json.loads(cli("db", "check", "--json")[0])
    assert (shape["needs_revision"], shape["trouble"]) == (SCHEMA_REVISION, None)
    assert shape["database"].startswith("sqlite:///")
    monkeypatch.setenv("PAGEMILL_DATABASE_URL", f"sqlite:///{tmp_path}/none.db")
    out, said = cli("db", "check", "--json", expect=69)
    shape = json.loads(out)
    assert shape["needs_revision"] == SCHEMA_REVISION
    assert shape["trouble"] in said
