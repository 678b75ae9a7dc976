"""Submitting twice with one key gives one job."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError

from jobs.database import Database
from jobs.errors import KeyReused
from jobs.records import NewJob
from jobs.states import JobState
from jobs.store import Store
from tests.support.child import child
from tests.support.command_line import CommandLine
from tests.support.job_store import StoreUnderTest, new_job

AT_ONCE = 8


def keyed(key: str, **changes: Any) -> NewJob:
    return dataclasses.replace(new_job(), idempotency_key=key, fingerprint="f", **changes)


@pytest.mark.quick
def test_the_second_submission_gives_the_first_job(back: StoreUnderTest) -> None:
    first = back.store.insert_job(keyed("k"))
    assert first.idempotency_key == "k"
    assert back.store.insert_job(keyed("k")) == first
    back.complete(first.id)
    assert back.store.insert_job(keyed("k")).state == JobState.COMPLETED
    assert back.store.insert_job(keyed("l")).state == JobState.QUEUED
    assert len(back.store.list_jobs()) == 2


@pytest.mark.quick
def test_jobs_without_a_key_are_jobs_of_their_own(back: StoreUnderTest) -> None:
    jobs = [back.store.insert_job(dataclasses.replace(new_job(), fingerprint="f")) for _ in "ab"]
    assert len({job.id for job in jobs}) == 2


@pytest.mark.quick
@pytest.mark.parametrize(
    ("changes", "other"),
    [
        ({"model": "n"}, "another model;"),
        ({"seed": 8, "options": {}}, "another options and another seed;"),
        ({}, "another input;"),
    ],
)
def test_a_key_is_not_for_another_job(
    back: StoreUnderTest, changes: dict[str, Any], other: str
) -> None:
    first = back.store.insert_job(keyed("k"))
    second = dataclasses.replace(keyed("k"), fingerprint="g", **changes)
    with pytest.raises(KeyReused, match=f"'k' is that of job {first.id}, which has {other}"):
        back.store.insert_job(second)
    assert [job.id for job in back.store.list_jobs()] == [first.id]


@pytest.mark.quick
def test_the_database_itself_allows_a_key_once(back: StoreUnderTest) -> None:
    first, second = (back.store.insert_job(keyed(key)) for key in "kl")
    with (
        pytest.raises(Exception, match=r"(?i)unique") as caught,
        back.database.engine.begin() as connection,
    ):
        connection.exec_driver_sql(
            f"UPDATE jobs SET idempotency_key = 'k' WHERE id = '{second.id}'"
        )
    assert isinstance(caught.value, IntegrityError)
    assert first.id != second.id


def test_of_those_at_the_same_instant_one_becomes_a_job(back: StoreUnderTest) -> None:
    for number in range(10):
        key = f"key {number}"
        barrier = threading.Barrier(AT_ONCE)

        def submit(key: str = key, barrier: threading.Barrier = barrier) -> str:
            new = keyed(key)
            barrier.wait()
            return back.store.insert_job(new).id

        with ThreadPoolExecutor(AT_ONCE) as pool:
            ids = {future.result() for future in [pool.submit(submit) for _ in range(AT_ONCE)]}
        assert len(ids) == 1
        (job_id,) = ids
        assert len(back.store.chunks(job_id)) == 3
    assert len(back.store.list_jobs()) == 10


@pytest.mark.quick
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)  # SQLite lets one write
def test_a_key_whose_job_is_deleted_between_two_statements(
    back: StoreUnderTest, database_url: str
) -> None:
    first = back.store.insert_job(keyed("k"))
    back.complete(first.id)
    others = Database(database_url)
    deleted: list[bool] = []

    def delete(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT INTO jobs ") and not deleted:
            deleted.append(Store(others).delete_job(first.id))

    event.listen(back.database.engine, "after_cursor_execute", delete)
    second = keyed("k")
    try:
        assert back.store.insert_job(second).id == second.id
    finally:
        event.remove(back.database.engine, "after_cursor_execute", delete)
        others.close()
    assert deleted == [True]
    assert [job.id for job in back.store.list_jobs()] == [second.id]
    assert len(back.store.chunks(second.id)) == 3


# ---- the command


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(tmp_path / "home", monkeypatch)


def folders(cli: CommandLine) -> set[str]:
    return {path.name for path in cli.storage.root.iterdir() if path.name.startswith("job_")}


def test_submitting_again_prints_the_same_id_and_leaves_nothing(cli: CommandLine) -> None:
    rows = ({"prompt": "a"}, {"prompt": "b"})
    job_id = cli.submit(*rows, options=("--idempotency-key", "nightly 1"))
    out, hints = cli(
        "submit", str(cli.home / "rows.jsonl"), "--model", "the-model",
        "--idempotency-key", "nightly 1", "--name", "again",
    )  # fmt: skip
    assert out == f"{job_id}\n"
    assert f"already submitted: job {job_id} has this idempotency key and is queued" in hints
    assert folders(cli) == {job_id}
    assert cli.json("status", job_id)["idempotency_key"] == "nightly 1"


def test_other_content_is_refused_and_leaves_nothing(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"}, options=("--idempotency-key", "k"))
    (cli.home / "rows.jsonl").write_text('{"prompt": "b"}\n')
    _, said = cli(
        "submit", str(cli.home / "rows.jsonl"), "--model", "the-model",
        "--idempotency-key", "k", expect=64,
    )  # fmt: skip
    assert f"job {job_id}, which has another input" in said
    assert folders(cli) == {job_id}


def test_processes_at_the_same_instant_print_one_id(cli: CommandLine) -> None:
    cli("db", "upgrade")
    path = cli.home / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"row {i}"}) + "\n" for i in range(200)))
    command = [
        sys.executable, "-P", "-m", "jobs", "submit", str(path), "--model", "m",
        "--idempotency-key", "k",
    ]  # fmt: skip
    with ExitStack() as stack:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        processes = [stack.enter_context(child(command, **pipes)) for _ in range(4)]
        said = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, said
    (job_id,) = {out.strip() for out, _ in said}
    assert sum("already submitted" in hints for _, hints in said) == 3
    assert folders(cli) == {job_id}
    assert len(cli.json("list")) == 1
