"""From the options of `submit` and `run` to a queued job."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from jobs.cli.console import console, note, plural
from jobs.cli.deadline import parse_deadline
from jobs.cli.deployment import Deployment, model_name
from jobs.cli.options import SubmitOptions
from jobs.errors import UsageError
from jobs.text_files import text_of

if TYPE_CHECKING:
    from jobs.job_folder import JobFolder
    from jobs.records import JobRecord, NewJob
    from jobs.submission import Progress, Submission

_SHOWN_ERRORS = 3


def submit_job(
    deployment: Deployment, options: SubmitOptions, *, answered_here: bool = False
) -> JobRecord:
    """Validate and queue a job; hints about its rows go to stderr.

    The job that was submitted before with the same idempotency key is returned instead, in
    whatever state it is.

    Args:
        answered_here: a worker for it is started on this machine.

    Raises:
        JobsError: the file or the options are refused; nothing is left behind.
    """
    submission = submission_of(deployment, options)
    doubt = deployment.doubt_of(submission.model, here=answered_here)
    with _reading() as progress:
        job, new = queue_job(deployment, submission, progress)
    if new is None:
        note(
            f"already submitted: job {job.id} has this idempotency key and is {job.state}; "
            "nothing was queued"
        )
    else:
        _tell_rows(deployment, new)
        if doubt:
            note(f"Warning: {doubt}")
    deployment.wake(job.model)
    return job


def queue_job(
    deployment: Deployment,
    submission: Submission,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[JobRecord, NewJob | None]:
    """Validate and insert a job, and not wake anybody yet.

    Returns:
        The job, and what was inserted; None if it was submitted before.

    Raises:
        JobsError: the input or the options are refused; nothing is left behind.
    """
    from jobs.notifications.urls import checked_urls
    from jobs.orphans import claim_for_submit
    from jobs.submission import prepare

    urls = checked_urls(submission.notify_urls, deployment.settings.webhook_hosts)
    new = prepare(
        dataclasses.replace(submission, notify_urls=urls),
        deployment.storage,
        progress,
        in_use=bool(deployment.store.list_jobs(limit=1)),
        max_unpacked=deployment.settings.max_unpacked_bytes,
    )
    folder = deployment.storage.job(new.folder)
    try:
        claim_for_submit(folder, new.plan.input_path)
        job = deployment.store.insert_job(new)
    except BaseException:
        # After a lost answer the job may be there all the same, and needs its folder.
        with contextlib.suppress(Exception):
            if not deployment.store.was_inserted(new):
                folder.remove_all()
        raise
    if job.id == new.id:
        return job, new
    folder.remove_all()
    return job, None


def submission_of(deployment: Deployment, options: SubmitOptions) -> Submission:
    """What the options ask for, not yet validated.

    Raises:
        UsageError: an option cannot be read.
    """
    # A deadline is by the database's clock, which is the one that ends the job.
    return read_submission(options, deployment.store.now)


def read_submission(options: SubmitOptions, now: Callable[[], datetime]) -> Submission:
    """As `submission_of`, by another clock.

    Raises:
        UsageError: an option cannot be read.
    """
    from jobs.submission import Submission

    deadline = options.deadline
    optional: dict[str, Any] = (
        {} if options.chunk_rows is None else {"chunk_rows": options.chunk_rows}
    )
    model = model_name(options.model)
    served = options.served_model_name or []
    if options.model != model:  # rows may name the folder as it was named here
        served = [options.model, *served]
    return Submission(
        input=options.file,
        model=model,
        name=options.name,
        sampling=options.sampling(),
        chat_template_kwargs=_json_object("--chat-template-kwargs", options.chat_template_kwargs),
        served_model_names=served,
        system=options.system,
        template=None if options.template is None else text_of(options.template),
        prompt_column=options.prompt_column,
        limit=options.limit,
        seed=options.seed,
        priority=options.priority,
        deadline_at=None if deadline is None else parse_deadline(deadline, now()),
        row_timeout=options.row_timeout,
        strict=options.strict,
        idempotency_key=options.idempotency_key,
        kind=options.kind,
        pooling=options.pooling or "last",
        normalize=not options.no_normalize,
        notify_urls=options.notify or [],
        input_format=None if options.format is None else options.format.value,
        **optional,
    )


def _json_object(option: str, text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    import orjson

    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{option} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f'{option} is {text[:60]}; it must be an object, such as {{"key": true}}')
    return value


@contextlib.contextmanager
def _reading() -> Iterator[Callable[[Progress], None] | None]:
    """A progress bar for the reading of large files; none where nobody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn("reading"),
        BarColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
        console=console(sys.stderr),
        transient=True,
    ) as bar:
        task = bar.add_task("reading", total=None, rows=0)
        yield lambda seen: bar.update(
            task, completed=seen.bytes_read, total=seen.total_bytes, rows=seen.rows
        )


def _tell_rows(deployment: Deployment, new: NewJob) -> None:
    plan = new.plan
    note(f"{plural(plan.total_rows, 'row')} in {plural(len(plan.chunks), 'chunk')}")
    for line in told_of_refused(deployment, new):
        note(line)


def told_of_refused(deployment: Deployment, new: NewJob) -> list[str]:
    """Lines about the rows that were refused; none if no row was."""
    rejected = new.plan.rejected
    if not rejected:
        return []
    fate = "an error row" if rejected == 1 else "error rows"
    lines = [f"{plural(rejected, 'row')} cannot be answered and will be {fate}:"]
    lines += [f"  {line}" for line in _first_errors(new, deployment.storage.job(new.folder))]
    if rejected > _SHOWN_ERRORS:
        lines.append(f"  … `pagemill errors {new.id}` lists all of them")
    return lines


def _first_errors(new: NewJob, folder: JobFolder) -> list[str]:
    from jobs.parts import read_batches

    lines: list[str] = []
    for window in new.plan.windows:
        if window.rejected is None:
            continue
        for batch in read_batches(folder, window.rejected):
            for error in batch.column("error").to_pylist():
                lines.append(f"line {error['line']}: {error['message']} [{error['code']}]")
                if len(lines) == _SHOWN_ERRORS:
                    return lines
    return lines
