"""What people see: progress, closing sentences, and terminals."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs import finalize
from jobs.cli.console import duration, visible
from jobs.cli.device_use import device_use
from jobs.cli.progress import Speed, progress_display, progress_line
from jobs.cli.shapes import summary
from jobs.records import Counts, DeviceTime, JobProgress, JobRecord
from jobs.states import JobState
from tests.support.command_line import CommandLine, on_a_terminal
from tests.support.played_job import PlayedJob

START = datetime(2030, 1, 31, tzinfo=UTC)
ESCAPES = "\x1b]0;title\x07 \x1b[31mred \x9b2J \x7f"

quick = pytest.mark.quick


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(tmp_path / "home", monkeypatch)


def job_record(state: JobState = JobState.COMPLETED, **values: object) -> JobRecord:
    record = JobRecord(
        id="job_a", name=None, state=state, model="m", input_uri="-", folder="job_a", options={},
        seed=1, priority=0, version=1, published_version=1, total_rows=10, chunks_total=1,
        chunks_left=0, counts=Counts(), stop_reason=None, error_code=None, error_message=None,
        waiting_for=None, created_at=START, started_at=None, finalizing_at=None, finished_at=None,
        deadline_at=None, cancel_requested_at=None,
    )  # fmt: skip
    return dataclasses.replace(record, **values)  # type: ignore[arg-type]


def progress(counts: Counts, seconds: float = 0.0, state: JobState | None = None) -> JobProgress:
    job = job_record(state or JobState.IN_PROGRESS)
    return JobProgress(job, counts, 1, 0, START + timedelta(seconds=seconds))


# ---- progress


@quick
def test_progress_tells_answers_from_errors() -> None:
    counts = Counts(8, 1, 0, 1, prompt_tokens=10, cached_tokens=5)

    assert progress_line(progress(counts), 85.4) == (
        "in_progress  8/10 rows answered  2 errors  85 tokens/s  prefix cache 50%"
    )
    cancelled = progress(Counts(9, cancelled=1), state=JobState.CANCELLED)
    assert progress_line(cancelled, 85.4) == "cancelled  9/10 rows answered  1 error"


@quick
def test_progress_ends_with_the_time_left_or_with_what_a_start_is_at() -> None:
    here = progress(Counts(5))
    starting = dataclasses.replace(
        progress(Counts(), state=JobState.QUEUED), starting="loading\n4%"
    )

    assert progress_line(here, 85.4, timedelta(seconds=150)) == (
        "in_progress  5/10 rows answered  85 tokens/s  about 2 min 30 s left"
    )
    assert progress_line(starting, None) == (
        "queued  0/10 rows answered  a worker starts: loading 4%"
    )


@quick
def test_lines_tell_of_a_start_and_then_of_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("jobs.cli.progress.LINE_SECONDS", 0.0)
    queued = progress(Counts(), state=JobState.QUEUED)

    with progress_display() as display:
        for step in ("loading torch", "loading torch", "loading weights 9%"):
            display(dataclasses.replace(queued, starting=step))
        display(progress(Counts(4), 10))
        display(progress(Counts(6), 20))

    assert capsys.readouterr().err.splitlines() == [
        "queued  0/10 rows answered  a worker starts: loading torch",
        "queued  0/10 rows answered  a worker starts: loading weights 9%",
        "in_progress  4/10 rows answered  0 tokens/s",
        "in_progress  6/10 rows answered  0 tokens/s  about 20 s left",
    ]


@quick
def test_the_speed_is_never_below_zero() -> None:
    """A chunk that is handed back takes the tokens of its unfinished rows with it."""
    speed = Speed()

    assert speed.of(progress(Counts(completion_tokens=100), 0)) is None
    assert speed.of(progress(Counts(completion_tokens=300), 2)) == 100
    assert speed.of(progress(Counts(completion_tokens=50), 4)) == 0


# ---- the closing sentence


@quick
def test_the_summary_has_duration_and_speed() -> None:
    job = job_record(
        total_rows=1,
        counts=Counts(1, prompt_tokens=1, cached_tokens=0, completion_tokens=2700),
        started_at=START,
        finished_at=START + timedelta(seconds=27),
    )

    assert summary(job) == (
        "job job_a completed: 1 of 1 row answered; 1 prompt token (0% from the prefix cache), "
        "2,700 completion tokens in 27 s, 100 tokens/s"
    )
    assert summary(dataclasses.replace(job, version=2)).endswith("tokens in 27 s")
    assert summary(dataclasses.replace(job, started_at=None)).endswith("2,700 completion tokens")


@quick
def test_the_summary_ends_with_what_it_took_of_devices() -> None:
    counts = Counts(1, prompt_tokens=2000, cached_tokens=1000, completion_tokens=1000)
    job = job_record(counts=counts)
    on_gpu = dataclasses.replace(job, device=DeviceTime(10.0, 10.0))
    partly = dataclasses.replace(job, device=DeviceTime(1234.56, 10.0))

    assert summary(on_gpu).endswith("; 10.0 GPU-seconds, 720k tokens per GPU-hour")
    assert summary(partly).endswith("; 1,234.6 device-seconds, 5.8k tokens per device-hour")
    assert "seconds" not in summary(job)


@quick
@pytest.mark.parametrize(
    ("seconds", "pace"),
    [(3600, "950"), (3.6, "950k"), (1, "3.4M"), (0.1, "34M"), (1e-4, "34G"), (1e-7, "34T")],
)
def test_large_numbers_are_short(seconds: float, pace: str) -> None:
    used = device_use(Counts(1, prompt_tokens=950), DeviceTime(seconds))
    assert used is not None
    assert used[2] == f"{pace} tokens per device-hour"


@quick
@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"), (2.71, "2.7 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1 min 0 s"),
        (3599.7, "1 h 0 min"), (7625, "2 h 7 min"), (3_600_000, "1,000 h 0 min"),
    ],
)  # fmt: skip
def test_durations_as_people_write_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# ---- terminals


@quick
def test_visible_text_keeps_all_that_a_terminal_only_shows() -> None:
    kept = "a\tb\nc é 漢 🙂 \u00a0"
    assert visible(kept) == kept
    assert visible("\u202a\u202e\u2066\u2069") == "\ufffd" * 4
    assert visible("\x00\x08\r\x1b\x7f\x80\x9b\x9f\ud800") == "\ufffd" * 9


@quick
@pytest.mark.parametrize("command", ["status", "list", "errors"])
def test_names_and_messages_carry_no_escapes(cli: CommandLine, command: str) -> None:
    job_id = cli.submit({"prompt": "a", "\x1b[31m": 1}, "bad \x1b]0;x\x07", {"prompt": "b"},
                        options=("--name", ESCAPES))  # fmt: skip
    with cli.store() as store:
        store.fail_job(job_id, "worker_failed", f"it said {ESCAPES}")

    out, err = cli(command, *([] if command == "list" else [job_id]))

    assert "\ufffd" in out + err
    assert not set("\x07\x1b\x7f\x9b") & set(out + err)


@quick
def test_the_answers_that_run_shows_carry_no_escapes(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A custom_id stands for what a model may say, too; JSONL is exact."""

    def answer(deployment: object, job: JobRecord, engine: object) -> JobRecord:
        with cli.store() as store:
            PlayedJob(store, cli.storage, job.id).finish_all()
            finalize.drive(store, cli.storage, "worker")
            return store.job(job.id)

    monkeypatch.setattr("jobs.cli.run._answer", answer)
    path = tmp_path / "in.jsonl"
    path.write_text('{"prompt": "a", "custom_id": "\\u001b[31mred\\u0007"}\n')

    out, _ = cli("run", str(path), "--model", "the-model")

    assert "\ufffd[31mred\ufffd" in out
    assert not set("\x07\x1b") & set(out)
    exact, _ = cli("results", cli.json("list")[0]["id"])
    assert '"custom_id":"\\u001b[31mred\\u0007"' in exact


def test_list_cuts_the_model_and_the_name_first(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"}, options=("--name", "a name of many words " * 5))
    created = cli.json("list")[0]["created_at"]
    moment = datetime.fromisoformat(created).astimezone().strftime("%Y-%m-%d %H:%M")

    for columns in (80, 100):
        lines = on_a_terminal(columns, "list")
        assert len(lines) == 2
        assert all(len(line) <= columns for line in lines)
        assert lines[1].startswith(f"{job_id}  queued  ")
        assert moment in lines[1]
        assert lines[1].rstrip().endswith("…")


def test_status_cuts_no_path(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"})
    cli("cancel", job_id)

    lines = on_a_terminal(40, "status", job_id)

    output = cli.json("status", job_id)["output"]
    assert len(output) > 40
    assert f"{'output':<17}  {output}" in lines
