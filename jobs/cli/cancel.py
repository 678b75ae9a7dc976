"""`pagemill cancel`."""

from __future__ import annotations

from jobs.cli.console import note
from jobs.cli.deployment import opened
from jobs.cli.options import JobId, Json
from jobs.cli.shapes import print_status, summary
from jobs.states import JobState


def cancel(job_id: JobId, as_json: Json = False) -> None:
    """End a job early; what was answered is published. Asking twice does no harm.

    Without a worker that holds rows of it, the job is ended at once.

    \b
    Example:
      pagemill cancel job_abcdefgh
    """
    with opened() as deployment:
        store = deployment.store
        job = store.request_cancel(store.job(job_id).id, "cancelled")
        if not job.state.terminal:
            deployment.settle(job.id)
            job = store.job(job.id)
        if job.state.terminal:
            deployment.tell_urls(job)
        if as_json:
            print_status(deployment, job.id)
        if job.state.terminal:
            note(summary(job))
            return
        if job.state is JobState.FINALIZING:
            waits = f", and waits for {job.waiting_for}" if job.waiting_for else ""
            note(
                f"job {job.id} is cancelled; what was answered is still to be published{waits} "
                f"(`pagemill wait {job.id}` sees it through)"
            )
            return
        note(
            f"job {job.id} is being cancelled: its workers hand their rows back in a moment "
            f"(`pagemill wait {job.id}` sees it through)"
        )
