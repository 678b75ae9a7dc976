"""Jobs as JSON (see docs/cli.md) and as sentences."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jobs import layout
from jobs.cli.console import duration, plural
from jobs.cli.device_use import device_sentence
from jobs.job_shape import device_json, job_json, rows_json, time_json, tokens_json
from jobs.shown_urls import shown_webhook
from jobs.states import HAS_WORK, JobState

if TYPE_CHECKING:
    from jobs.cli.deployment import Deployment
    from jobs.records import Counts, JobProgress, JobRecord
    from jobs.records.evaluations import NotificationRecord
    from jobs.storage import Storage

_SHOWN_JOBS = 3  # that keep workers busy


def listed_json(job: JobRecord, storage: Storage) -> dict[str, Any]:
    """A job, with the counts of its committed chunks."""
    return job_json(job, output_path(job, storage))


def progress_json(progress: JobProgress, storage: Storage) -> dict[str, Any]:
    """A job as a watcher sees it: the rows of running chunks are counted too."""
    shape = listed_json(progress.job, storage)
    shape["rows"] = rows_json(progress.job.total_rows, progress.counts)
    shape["tokens"] = tokens_json(progress.counts)
    shape["device"] = device_json(progress.counts, progress.device)
    shape["chunks"] |= {"running": progress.chunks_running, "done": progress.chunks_done}
    shape["workers_alive"] = progress.workers_alive
    shape["notify"] = [shown_webhook(url) for url in progress.job.notify_urls]
    shape["notifications"] = [notification_json(told) for told in progress.notifications]
    if lacks_worker(progress):
        shape["waiting_for"] = f"a worker of {progress.job.model}{how_the_last_ended(progress)}"
    elif (slot := free_slot(progress)) is not None:
        shape["waiting_for"] = slot
    return shape


def print_status(deployment: Deployment, job_id: str) -> None:
    """Print what `status --json` prints of a job now."""
    shape = progress_json(deployment.store.progress(job_id), deployment.storage)
    print(json.dumps(shape), flush=True)


def notification_json(told: NotificationRecord) -> dict[str, Any]:
    """What became of telling something to a URL; of that, only the host is shown."""
    return {
        "id": told.id,
        "subject": told.subject,
        "event": told.event,
        "url": shown_webhook(told.url),
        "state": told.state.value,
        "attempts": told.attempts,
        "error": told.error,
        "created_at": time_json(told.created_at),
        "next_at": time_json(told.next_at) if told.state == "pending" else None,
        "delivered_at": time_json(told.delivered_at),
    }


def lacks_worker(progress: JobProgress) -> bool:
    """Whether a job has work, waits for nothing else, and no living worker will do it."""
    job = progress.job
    return (
        not progress.workers_alive
        and job.state in HAS_WORK
        and job.paused_at is None
        and job.waiting_for is None
    )


def free_slot(progress: JobProgress) -> str | None:
    """`a free slot: 1 worker is busy with job_…`, if that is all that a job waits for."""
    taken = progress.taken
    if taken is None or progress.job.waiting_for is not None:
        return None
    shown = ", ".join(taken.jobs[:_SHOWN_JOBS])
    if len(taken.jobs) > _SHOWN_JOBS:
        shown += f" and {plural(len(taken.jobs) - _SHOWN_JOBS, 'more job')}"
    are = "is" if taken.workers == 1 else "are"
    return (
        f"a free slot: {plural(taken.workers, 'worker')} {are} busy with {shown}; "
        "a job of higher --priority gets the next one first"
    )


def how_the_last_ended(progress: JobProgress) -> str:
    """`; the last one failed at …: …`, in the words of the view `job_progress`."""
    worker = progress.last_worker
    if worker is None:
        return ""
    seen = f"{worker.seen_at:%Y-%m-%d %H:%M:%S} UTC"
    match worker.status.state:
        case "failed":
            why = worker.status.message or "it did not say why"
            return f"; the last one failed at {seen}: {why}"
        case "stopped":
            return f"; the last one left at {seen}"
    return f"; the last one was lost after {seen}"


def output_path(job: JobRecord, storage: Storage) -> str | None:
    """The folder of the newest published version."""
    if job.published_version is None:
        return None
    folder = storage.job(job.folder)
    return str(folder.at(layout.version_folder(job.published_version)))


def shown_state(job: JobRecord) -> str:
    """`in_progress`, or `in_progress (paused)`."""
    return job.state.value if job.paused_at is None else f"{job.state} (paused)"


def exit_code(job: JobRecord) -> int:
    """How `wait` ends for a job that has ended."""
    if job.state in (JobState.CANCELLED, JobState.EXPIRED):
        return 2
    return 1 if job.state is JobState.FAILED or job.counts.failed else 0


def summary(job: JobRecord) -> str:
    """How a job ended, in one sentence."""
    if job.state is JobState.FAILED:
        return f"job {job.id} failed: {job.error_message}"
    counts = job.counts
    parts = [f"{counts.completed:,} of {plural(job.total_rows, 'row')} answered"]
    if counts.failed:
        parts.append(f"{counts.failed:,} with errors (`pagemill errors {job.id}`)")
    if counts.cancelled or counts.expired:
        parts.append(f"{counts.cancelled + counts.expired:,} not answered")
    sentence = f"job {job.id} {job.state}: {', '.join(parts)}"
    if counts.prompt_tokens:
        sentence += (
            f"; {plural(counts.prompt_tokens, 'prompt token')} ({cached_share(counts):.0%} from "
            f"the prefix cache), {plural(counts.completion_tokens, 'completion token')}"
            f"{_pace(job)}"
        )
    if used := device_sentence(counts, job.device):
        sentence += f"; {used}"
    return sentence


def _pace(job: JobRecord) -> str:
    """` in 27 s, 105 tokens/s`; a retry's tokens were made by several versions."""
    if job.started_at is None or job.finished_at is None:
        return ""
    seconds = (job.finished_at - job.started_at).total_seconds()
    if seconds <= 0:
        return ""
    tokens = job.counts.completion_tokens
    speed = f", {tokens / seconds:,.0f} tokens/s" if tokens and job.version == 1 else ""
    return f" in {duration(seconds)}{speed}"


def unanswered(counts: Counts) -> int:
    """Rows that ended without an answer."""
    return counts.failed + counts.cancelled + counts.expired


def cached_share(counts: Counts) -> float:
    return counts.cached_tokens / counts.prompt_tokens if counts.prompt_tokens else 0.0
