"""Following a job: rows as they finish, the log of its worker, and Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import insert

from jobs import finalize, finished_rows, layout
from jobs.cli import logs, tail
from jobs.finished_rows import FinishedRows
from jobs.records import ChunkRecord, Counts
from jobs.storage import Storage
from jobs.store import Store, read
from jobs.store.rows import chunk_id, chunk_record, count_values
from jobs.tables import chunks
from tests.support.child import child
from tests.support.command_line import CommandLine
from tests.support.job_store import StoreUnderTest
from tests.support.played_job import PlayedJob, Window, add_job


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path) -> CommandLine:
    monkeypatch.setattr(tail, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.02)
    return CommandLine(tmp_path / "home", monkeypatch).with_tables(migrated_sqlite)


def rows(tables: Iterator[object]) -> list[int]:
    return [row for table in tables for row in table["row_index"].to_pylist()]  # type: ignore[index]


# ---- the rows


WINDOWS = [Window([[0, 3], [1, 4]], [2]), Window([[5, 6, 7]])]


@pytest.fixture
def played(store: Store, tmp_path: Path) -> PlayedJob:
    """Row 2 is refused; two windows, three chunks."""
    return add_job(store, Storage(str(tmp_path / "storage")), WINDOWS)


def finished(played: PlayedJob, **options: bool) -> FinishedRows:
    return FinishedRows(played.store, played.storage, played.store.job(played.id), **options)


def test_each_row_comes_once_whether_spooled_or_committed(played: PlayedJob) -> None:
    follower = finished(played)
    first, second = played.claim(), played.claim()
    given = [played.rows_of(first), played.rows_of(second)]

    assert rows(follower.new()) == []
    played.spool(first, given[0][:1])
    assert rows(follower.new()) == given[0][:1]
    assert rows(follower.new()) == []
    played.finish(first)
    assert rows(follower.new()) == given[0][1:]
    played.finish(second)
    assert rows(follower.new()) == given[1]
    played.finish_all()
    assert sorted(rows(follower.last())) == [5, 6, 7]
    assert rows(follower.last()) == []


def test_rows_that_finished_before_come_only_if_asked_for(played: PlayedJob) -> None:
    first, second = played.claim(), played.claim()
    given = [played.rows_of(first), played.rows_of(second)]
    played.finish(first)
    played.spool(second, given[1][:1])

    since, whole = finished(played), finished(played, from_the_start=True)

    assert rows(since.new()) == []
    assert rows(whole.new()) == given[0] + given[1][:1]
    played.finish(second)
    assert rows(since.new()) == rows(whole.new()) == given[1][1:]


def test_rows_of_a_cancelled_job_come_at_its_end_as_errors(played: PlayedJob) -> None:
    follower = finished(played)
    lease = played.claim()
    answered = played.rows_of(lease)
    played.spool(lease, answered[:1])
    assert rows(follower.new()) == answered[:1]
    played.store.request_cancel(played.id)
    played.store.requeue_owned("w")
    finalize.drive(played.store, played.storage, "f")
    assert played.store.job(played.id).state.terminal

    tables = list(follower.last())

    assert rows(iter(tables)) == sorted({0, 1, 3, 4, 5, 6, 7} - set(answered[:1]))
    codes = {error["code"] for table in tables for error in table["error"].to_pylist()}
    assert codes == {"cancelled"}


def test_a_job_that_failed_gives_what_there_is(played: PlayedJob) -> None:
    follower = finished(played)
    lease = played.claim()
    given = played.rows_of(lease)
    played.finish(lease)
    played.store.fail_job(played.id, "model_unavailable", "no model")

    assert rows(follower.last()) == given


def test_a_retry_gives_the_rows_that_it_answers(played: PlayedJob) -> None:
    from jobs.retry import plan_retry

    played.failing.add(3)
    played.finish_all()
    finalize.drive(played.store, played.storage, "f")
    played.store.reopen(played.id, *plan_retry(played.store, played.storage, played.id))
    follower = finished(played)
    played.failing.clear()
    played.finish_all()

    assert rows(follower.new()) == [3]


# ---- what a look costs

MANY = 20_000


@pytest.fixture
def anywhere(back: StoreUnderTest, tmp_path: Path) -> PlayedJob:
    """As `played`, on both databases."""
    return add_job(back.store, Storage(str(tmp_path / "storage")), WINDOWS)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of all chunks that are read from the database."""
    numbers: list[int] = []

    def record(row: Any) -> ChunkRecord:
        numbers.append(row.ordinal)
        return chunk_record(row)

    monkeypatch.setattr(read, "chunk_record", record)
    return numbers


def with_many_chunks(played: PlayedJob, back: StoreUnderTest, state: str) -> None:
    """Add chunks behind those of the job; of their rows there is nothing in files."""
    (of_job,) = {chunk.version for chunk in played.store.chunks(played.id)}
    first = len(played.store.chunks(played.id))
    done = state == "done"
    with back.database.begin() as connection:
        connection.execute(
            insert(chunks),
            [
                {
                    "id": chunk_id(played.id, of_job, ordinal), "job_id": played.id,
                    "version": of_job, "ordinal": ordinal, "window_ordinal": 1, "rows": 1,
                    "state": state, "part": "_parts/none" if done else None,
                    "lease_epoch": int(done), "wake_at": played.store.now(), "sends": 0,
                    **count_values(Counts()),
                }
                for ordinal in range(first, first + MANY)
            ],
        )  # fmt: skip
    back.set_job(played.id, chunks_total=first + MANY)


def test_a_look_reads_no_chunk_that_is_finished(
    anywhere: PlayedJob, back: StoreUnderTest, fetched: list[int]
) -> None:
    with_many_chunks(anywhere, back, "done")
    fetched.clear()
    follower = finished(anywhere)
    assert len(fetched) == MANY + 3  # once
    fetched.clear()
    assert rows(follower.new()) == []
    assert sorted(fetched) == [0, 1, 2]  # those that are not begun yet

    first, second = anywhere.claim(), anywhere.claim()
    given = [anywhere.rows_of(first), anywhere.rows_of(second)]
    anywhere.spool(first, given[0][:1])
    anywhere.finish(second)
    fetched.clear()
    assert rows(follower.new()) == given[0][:1] + given[1]
    assert sorted(fetched) == [0, 1, 2]
    fetched.clear()
    anywhere.finish(first)
    assert rows(follower.new()) == given[0][1:]
    assert sorted(fetched) == [0, 2]


def test_a_look_reads_few_chunks_that_are_not_begun(
    anywhere: PlayedJob, back: StoreUnderTest, fetched: list[int]
) -> None:
    with_many_chunks(anywhere, back, "queued")
    follower = finished(anywhere)
    lease = anywhere.claim()
    given = anywhere.rows_of(lease)
    anywhere.finish(lease)
    fetched.clear()
    assert rows(follower.new()) == given
    assert len(fetched) <= 300
    fetched.clear()
    assert rows(follower.new()) == []
    assert len(fetched) <= 100


def test_chunks_may_be_begun_in_any_order(
    anywhere: PlayedJob, back: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims pass over chunks that others hold at that moment."""
    monkeypatch.setattr(finished_rows, "_AT_ONCE", 1)
    follower = finished(anywhere)
    leases = [anywhere.claim() for _ in range(3)]
    given = [anywhere.rows_of(lease) for lease in leases]
    assert rows(follower.new()) == []
    for ordinal in (2, 0, 1):
        anywhere.finish(leases[ordinal])
        assert rows(follower.new()) == given[ordinal]
    assert rows(follower.last()) == []


def test_what_was_begun_far_ahead_comes_at_the_end_at_the_latest(
    anywhere: PlayedJob, back: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finished_rows, "_AT_ONCE", 1)
    follower = finished(anywhere)
    leases = [anywhere.claim() for _ in range(3)]
    given = anywhere.rows_of(leases[2])
    anywhere.finish(leases[2])
    for lease in leases[:2]:  # as if they had never been begun
        back.set_chunk(lease.chunk_id, state="queued", lease_epoch=0, lease_expires_at=None)
    assert rows(follower.new()) == []
    assert rows(follower.last()) == given


def test_a_chunk_that_is_done_again_by_another_gives_each_row_once(
    anywhere: PlayedJob, back: StoreUnderTest
) -> None:
    follower = finished(anywhere)
    lost = anywhere.claim()
    given = anywhere.rows_of(lost)
    anywhere.spool(lost, given[:1])
    assert rows(follower.new()) == given[:1]
    back.expire_leases(id=lost.chunk_id)
    anywhere.store.requeue_expired()
    assert rows(follower.new()) == []
    again = anywhere.claim("other")
    assert again.chunk_id == lost.chunk_id
    anywhere.finish(again)
    assert rows(follower.new()) == given[1:]


def test_rows_come_from_parts_also_once_their_window_is_merged(played: PlayedJob) -> None:
    follower = finished(played)
    played.finish_all()
    finalize.drive(played.store, played.storage, "f")
    assert sorted(rows(follower.new())) == [0, 1, 3, 4, 5, 6, 7]
    assert rows(follower.last()) == []


# ---- the command


def play(cli: CommandLine, job_id: str, failing: set[int] | None = None) -> None:
    """Answer a job of one chunk, in two steps."""
    with cli.store() as store:
        played = PlayedJob(store, cli.storage, job_id, failing or set())
        lease = played.claim()
        played.spool(lease, played.rows_of(lease)[:1])
        time.sleep(0.4)
        played.finish(lease)
        finalize.drive(store, cli.storage, "worker")


@contextmanager
def meanwhile(
    patch: pytest.MonkeyPatch, module: ModuleType, name: str, work: Callable[[], object]
) -> Iterator[None]:
    """Something that happens once a command has begun to follow."""
    begun, over, follow = threading.Event(), threading.Event(), getattr(module, name)

    def beginning(*arguments: object) -> object:
        begun.set()
        return follow(*arguments)

    def wait_and_work() -> None:
        begun.wait()
        if not over.is_set():
            work()

    patch.setattr(module, name, beginning)
    thread = threading.Thread(target=wait_and_work)
    thread.start()
    try:
        yield
        assert begun.is_set()
    finally:
        if not begun.is_set():
            over.set()
            begun.set()
        thread.join()


def test_tail_prints_a_line_a_row_until_the_end(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = cli.submit({"prompt": "a", "custom_id": "first\x1b"}, {"prompt": "b"}, "bad")

    with meanwhile(monkeypatch, tail, "follow", lambda: play(cli, job_id, {1})):
        out, err = cli("tail", job_id)

    assert sorted(out.splitlines()) == [
        "row 0  first\ufffd  stop  3 tokens  answer 0",
        "row 1  error  0 tokens  no number [nan_logits]",
    ]
    assert err.splitlines()[-1] == f"job {job_id} has ended (completed); 2 rows shown"


def test_tail_as_json_gives_rows_as_results_does(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = cli.submit({"prompt": "a", "topic": "x"}, {"prompt": "b"})

    with meanwhile(monkeypatch, tail, "follow", lambda: play(cli, job_id)):
        out, _ = cli("tail", job_id, "--json")

    found = sorted(map(json.loads, out.splitlines()), key=lambda row: row["row_index"])
    published = [json.loads(line) for line in cli("results", job_id)[0].splitlines()]
    assert found == published


def test_tail_of_a_job_that_has_ended(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"})
    play(cli, job_id)

    out, err = cli("tail", job_id)
    assert out == ""
    assert f"has ended (completed); `pagemill results {job_id}` reads its rows" in err
    assert cli("tail", job_id, "--all")[0] == "row 0  stop  3 tokens  answer 0\n"


# ---- the log

TEXT = "2030-01-31 08:00:00,000 ERROR pagemill.worker it broke \x1b[31m"
JSON = json.dumps({"ts": "T", "level": "INFO", "logger": "l", "message": "a chunk", "rows": 3})


def log_of(cli: CommandLine, job_id: str) -> Path:
    path = cli.storage.root / layout.run_log(job_id)
    path.parent.mkdir(exist_ok=True)
    return path


def test_logs_shows_both_forms_as_text_or_as_json(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"})
    log_of(cli, job_id).write_text(f"{JSON}\n\n{TEXT}\nTraceback …\nhalf a li")

    out, _ = cli("logs", job_id)
    assert out == f"T INFO l a chunk\n{TEXT.replace(chr(27), chr(0xFFFD))}\nTraceback …\n"
    assert cli("logs", job_id, "-n", "1")[0] == "Traceback …\n"
    assert cli("logs", job_id, "--lines", "0")[0] == ""
    found = [json.loads(line) for line in cli("logs", job_id, "--json")[0].splitlines()]
    assert found == [
        json.loads(JSON),
        {"level": "ERROR", "message": "it broke \x1b[31m", "line": TEXT},
        {"level": None, "message": "Traceback …", "line": "Traceback …"},
    ]


def test_a_job_without_a_log(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"})

    _, err = cli("logs", job_id, expect=75)

    assert f"there is no log of job {job_id} in the storage: only `pagemill run` writes one" in err


def test_logs_follows_until_the_job_has_ended(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = cli.submit({"prompt": "a"})
    path = log_of(cli, job_id)

    def write() -> None:
        with open(path, "w") as log:
            for number in range(3):
                log.write(f"line {number}\n")
                log.flush()
                time.sleep(0.05)
            log.write("the last")
        with cli.store() as store:
            store.request_cancel(job_id, "cancelled")
            finalize.drive(store, cli.storage, "worker")

    with meanwhile(monkeypatch, logs, "_follow", write):
        out, err = cli("logs", job_id, "--follow")

    assert out == "line 0\nline 1\nline 2\nthe last\n"
    assert f"there is no log of job {job_id} yet" in err


def test_a_log_that_cannot_be_read(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"})
    log_of(cli, job_id).mkdir()
    _, err = cli("logs", job_id, expect=75)
    assert "there is no log" in err


# ---- Ctrl-C


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["status", "--watch"], ["look again:  pagemill status {} --watch"]),
        (["status", "--watch", "--json"], ["look again:  pagemill status {} --watch --json"]),
        (["wait"], ["look again:  pagemill wait {}", "end it:      pagemill cancel {}"]),
        (["tail"], ["look again:  pagemill tail {}"]),
        (["tail", "--json"], ["look again:  pagemill tail {} --json"]),
        (["logs", "--follow"], ["look again:  pagemill logs {} --follow"]),
    ],
)
def test_ctrl_c_detaches_and_says_how_to_look_again(
    cli: CommandLine, command: list[str], said: list[str]
) -> None:
    job_id = cli.submit({"prompt": "a"})
    program = (
        "import sys, time, jobs.cli.watching, jobs.cli.logs\n"
        "def sleep(_):\n"  # between two looks
        "    print('it waits', file=sys.stderr, flush=True)\n"
        "    real(20)\n"
        "real, time.sleep = time.sleep, sleep\n"
        "from jobs.__main__ import main\n"
        "main()\n"
    )
    with child(
        [sys.executable, "-c", program, *command, job_id],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        err = ""
        while "it waits" not in err:
            line = process.stderr.readline()
            assert line, err
            err += line
        process.send_signal(signal.SIGINT)
        err += process.communicate(timeout=120)[1]

    assert process.returncode == 130, err
    lines = ["Detached; job {} goes on", *said]
    assert err.splitlines()[-len(lines) :] == [line.replace("{}", job_id) for line in lines]
    assert "Traceback" not in err
    assert cli.json("status", job_id)["state"] == "queued"
