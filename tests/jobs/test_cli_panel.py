"""The live panel of `status --watch`."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import io
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs import finalize
from jobs.cli.console import console
from jobs.cli.panel import panel
from jobs.cli.progress import Pace, progress_line
from jobs.records import (
    Counts,
    DeviceTime,
    JobProgress,
    JobRecord,
    TakenSlots,
    WorkerRecord,
    WorkerStatus,
)
from jobs.states import JobState
from tests.support.command_line import CommandLine
from tests.support.played_job import MODEL, PlayedJob
from tests.support.terminal import plain

quick = pytest.mark.quick
START = datetime(2030, 1, 31, tzinfo=UTC)
JOB = JobRecord(
    id="job_a", name="night\x1b[31m\nly", state=JobState.IN_PROGRESS, model="m", input_uri="-",
    folder="job_a", options={}, seed=1, priority=0, version=1, published_version=None,
    total_rows=200, chunks_total=4, chunks_left=3, counts=Counts(), stop_reason=None,
    error_code=None, error_message=None, waiting_for=None, created_at=START, started_at=START,
    finalizing_at=None, finished_at=None, deadline_at=START + timedelta(hours=2),
    cancel_requested_at=None,
)  # fmt: skip
BUSY = WorkerStatus(
    "ready", chunks_held=3, running=200, waiting=56, blocks_used=25, blocks_total=100,
    prompt_tokens=100, cached_tokens=91, preemptions=1234, tokens_per_second=4321.4,
)  # fmt: skip


def progress(rows: int = 60, seconds: float = 65, **job: object) -> JobProgress:
    counts = Counts(max(0, rows - 2), min(2, rows), prompt_tokens=10, cached_tokens=5)
    record = dataclasses.replace(JOB, **job)  # type: ignore[arg-type]
    return JobProgress(record, counts, 2, 1, START + timedelta(seconds=seconds), 1)


def worker(id: str = "gpu-7:4711:0f", status: WorkerStatus = BUSY) -> WorkerRecord:
    return WorkerRecord(
        id=id, host="h", pid=1, model="m", software="0", concurrency=4, started_at=START,
        seen_at=START, status=status, alive=True,
    )  # fmt: skip


def drawn(*arguments: object, width: int = 100) -> list[str]:
    shown = console(io.StringIO())
    shown.width = width
    shown.print(panel(*arguments, width))  # type: ignore[arg-type]
    return [line.rstrip() for line in shown.file.getvalue().splitlines()]  # type: ignore[attr-defined]


@quick
def test_a_panel_has_rows_pace_chunks_and_workers() -> None:
    lines = drawn(progress(), 85.4, timedelta(seconds=150), [worker()])

    assert lines[0] == "job_a  night\ufffd[31m ly  in_progress  m"
    assert lines[1].endswith("  30%  58 of 200 rows answered, 2 errors")
    assert lines[2:4] == [
        "85 tokens/s  prefix cache 50%  for 1 min 5 s  about 2 min 30 s left  "
        "deadline in 1 h 58 min",
        "chunks: 1 of 4 done, 2 running",
    ]
    assert lines[4].split() == [
        "worker", "state", "chunks", "run/wait", "KV", "tok/s", "cached", "preempted",
    ]  # fmt: skip
    assert lines[5].split() == [
        "gpu-7:4711:0f", "ready", "3/4", "200/56", "25%", "4,321", "91%", "1,234",
    ]  # fmt: skip
    assert len(lines) == 6


@quick
def test_a_panel_tells_what_was_taken_of_devices() -> None:
    busy = dataclasses.replace(progress(), device=DeviceTime(0.018, 0.018))

    lines = drawn(busy, 85.4, None, [])

    assert lines[4] == "0.0 GPU-seconds, 1.0M tokens per GPU-hour"


@quick
def test_a_panel_tells_what_workers_do_that_do_not_work() -> None:
    loading = WorkerStatus("starting", "loading weights 60%, about 4 s left")

    lines = drawn(progress(), None, None, [worker(), worker("gpu-8:1:0e", loading)])

    assert lines[-1] == "gpu-8:1:0e: loading weights 60%, about 4 s left"
    assert len(lines) == 4 + 3 + 1


@quick
def test_a_panel_of_a_job_that_waits() -> None:
    waiting = progress(
        0, state=JobState.QUEUED, started_at=None, deadline_at=None, waiting_for="room", name=None,
        paused_at=START,
    )  # fmt: skip
    empty = dataclasses.replace(waiting, counts=Counts())

    lines = drawn(empty, None, None, [])

    assert lines[0] == "job_a  queued (paused)  m"
    assert lines[1].endswith("  0%  0 of 200 rows answered")
    assert lines[2:] == [
        "not begun", "chunks: 1 of 4 done, 2 running",
        "waits for room", "no worker of this model is alive",
    ]  # fmt: skip


@quick
def test_a_panel_tells_what_keeps_the_workers_busy() -> None:
    taken = TakenSlots(2, tuple(f"job_{n}" for n in range(5)))
    waiting = dataclasses.replace(progress(0, state=JobState.QUEUED), taken=taken)

    lines = drawn(waiting, None, None, [worker()], width=150)

    assert (
        "waits for a free slot: 2 workers are busy with job_0, job_1, job_2 and 2 more jobs; "
        "a job of higher --priority gets the next one first"
    ) in lines


@quick
@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_panel_fits_the_terminal(width: int) -> None:
    """A line that were wrapped would not be drawn over."""
    many = [worker(f"a-host-with-a-long-name.example.org:{n}:0f") for n in range(12)]

    lines = drawn(progress(waiting_for="a disk " * 30), 85.4, timedelta(days=1), many, width=width)

    assert all(len(line) <= width for line in lines)
    pace_lines = 1 if width == 120 else 2
    assert len(lines) == 4 + pace_lines + 1 + 10 + 1
    assert ("preempted" in lines[-12]) == (width > 60)
    assert all(" 200/56 " in line and " 25% " in line for line in lines[-11:-1])
    assert lines[-1].startswith("and 2 more workers")


@quick
def test_the_time_left_is_by_the_rows_of_the_last_minute() -> None:
    pace = Pace()

    assert pace.left(progress(0, -50, state=JobState.QUEUED)) is None  # a worker starts
    assert pace.left(progress(0, 0)) is None
    assert pace.left(progress(50, 10)) == timedelta(seconds=30)
    assert pace.left(progress(50, 60)) == timedelta(seconds=180)
    assert pace.left(progress(50, 75)) is None  # nothing for a minute
    assert pace.left(progress(60, 80)) == timedelta(seconds=140 * 20 / 10)
    assert pace.left(progress(70, 85, paused_at=START)) is None
    assert pace.left(progress(200, 90, state=JobState.FINALIZING)) is None


@quick
@pytest.mark.parametrize(
    ("total", "few", "enough"), [(4, 2, 3), (60, 5, 6), (200, 19, 20), (1_000_000, 999, 1000)]
)
def test_the_first_rows_tell_nothing_of_the_time_left(total: int, few: int, enough: int) -> None:
    """They wait for all that are computed beside them: 1 of 60 rows once meant 25 minutes."""
    pace = Pace()

    assert pace.left(progress(0, 0, total_rows=total)) is None
    assert pace.left(progress(few, 26, total_rows=total)) is None
    left = pace.left(progress(enough, 30, total_rows=total))
    assert left == timedelta(seconds=30) * (total - enough) / enough


@quick
def test_no_number_is_lost_where_a_line_is_too_narrow() -> None:
    """Lines go on below rather than be cut."""
    named = progress(name="a nightly run of many words")

    lines = drawn(named, 85.4, timedelta(seconds=150), [], width=60)

    assert lines[0] == "job_a  a nightly run of many words  in_progress  m"
    assert lines[1].endswith("30%  58 of 200 rows answered, 2 errors")
    assert lines[2:4] == [
        "85 tokens/s  prefix cache 50%  for 1 min 5 s",
        "about 2 min 30 s left  deadline in 1 h 58 min",
    ]
    assert drawn(named, None, None, [], width=30)[:2] == ["job_a", "a nightly run of many words"]


@quick
def test_a_job_that_is_not_begun_has_no_speed() -> None:
    waiting = progress(0, state=JobState.QUEUED, started_at=None, deadline_at=None)
    empty = dataclasses.replace(waiting, counts=Counts())

    assert drawn(empty, 0.0, None, [])[2] == "not begun"


@dataclasses.dataclass
class Watching:
    """A command on a terminal of 100 columns."""

    process: subprocess.Popen[str]
    seen: bytearray

    def until(self, text: bytes) -> None:
        deadline = time.monotonic() + 60
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            assert self.process.poll() is None, self.seen
            time.sleep(0.05)


@contextlib.contextmanager
def on_a_terminal(*arguments: str) -> Iterator[Watching]:
    """Run a command whose stderr is a terminal, and read all that goes there."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    seen = bytearray()

    def read() -> None:
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # how Linux tells that nobody holds the other end
                return
            seen.extend(data)

    with subprocess.Popen(
        [sys.executable, "-P", "-m", "jobs", *arguments],
        stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, env=env, text=True,
    ) as process:  # fmt: skip
        os.close(theirs)
        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield Watching(process, seen)
        finally:
            process.kill()
            reader.join(10)
            os.close(ours)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path) -> CommandLine:
    return CommandLine(tmp_path / "home", monkeypatch).with_tables(migrated_sqlite)


def test_on_a_terminal_the_panel_is_drawn_and_taken_away(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"}, {"prompt": "b"})
    with cli.store() as store:
        store.register_worker("gpu-7:4711:0f", MODEL, 4, "0.1.0", BUSY)
        played = PlayedJob(store, cli.storage, job_id)
        lease = played.claim("gpu-7:4711:0f")
        with on_a_terminal("status", "--watch", job_id) as watching:
            watching.until(b"preempted")
            played.finish(lease)
            finalize.drive(store, cli.storage, "worker")
            out, _ = watching.process.communicate(timeout=60)
    seen = watching.seen

    text = plain(seen.decode())
    assert re.search(r"gpu-7:4711:0f +ready +3/4 +200/56 +25% +4,321 +91% +1,234", text)
    assert "0%  0 of 2 rows answered" in text
    assert b"\x1b[1A" in seen  # drawn over
    assert b"\x1b[2K" in seen[seen.rindex(b"preempted") :]  # and taken away
    assert watching.process.returncode == 0
    assert re.search(r"^state +completed$", out, re.MULTILINE)
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("command", "last"),
    [
        (["status", "--watch"], b"no worker of this model is alive"),
        (["wait"], b"0/2 rows answered"),
    ],
)
def test_ctrl_c_leaves_the_last_state_on_the_terminal(
    cli: CommandLine, command: list[str], last: bytes
) -> None:
    job_id = cli.submit({"prompt": "a"}, {"prompt": "b"})

    with on_a_terminal(*command, job_id) as watching:
        watching.until(last)
        watching.process.send_signal(signal.SIGINT)
        out, _ = watching.process.communicate(timeout=60)
    seen = watching.seen

    assert watching.process.returncode == 130
    assert out == ""
    rest = bytes(seen[seen.rindex(last) :])
    assert b"\x1b[1A" not in rest  # the cursor never goes back to it
    assert f"Detached; job {job_id} goes on" in plain(rest.decode())


@pytest.mark.parametrize("columns", [80, 60])
def test_the_bar_keeps_what_matters_most_on_a_narrow_terminal(columns: int) -> None:
    here = progress(100, 30, state=JobState.IN_PROGRESS)

    line = progress_line(here, 85.4, timedelta(seconds=30), columns - 19)

    assert line.endswith("2 errors  about 30 s left")
    assert len(line) <= columns - 19
    assert ("98/200 rows answered" in line) == (columns == 80)
    starting = dataclasses.replace(here, starting="loading weights 60%, about 12 s left")
    assert progress_line(starting, None, None, 20) == (
        "a worker starts: loading weights 60%, about 12 s left"
    )
