"""`pagemill pause` and `pagemill resume`."""

from __future__ import annotations

from jobs.cli.console import note
from jobs.cli.deployment import opened
from jobs.cli.options import JobId, Json
from jobs.cli.shapes import print_status
from jobs.cli.worker import worker_hint


def pause(job_id: JobId, as_json: Json = False) -> None:
    """Let a job wait. None of its rows is begun, and workers hand back those that they hold.

    What was answered is kept. The deadline goes on, and `cancel` ends a paused job, too. Pausing
    twice does no harm.

    \b
    Example:
      pagemill pause job_abcdefgh
    """
    with opened() as deployment:
        store = deployment.store
        job = store.pause(store.job(job_id).id)
        if store.progress(job.id).chunks_running:
            note("Its workers hand their rows back in a moment; what they answered is kept")
        if as_json:
            print_status(deployment, job.id)
    note(f"job {job.id} is paused; `pagemill resume {job.id}` lets it go on")


def resume(job_id: JobId, as_json: Json = False) -> None:
    """Let a paused job go on. Resuming one that is not paused does no harm.

    \b
    Example:
      pagemill resume job_abcdefgh
    """
    with opened() as deployment:
        store = deployment.store
        job = store.resume(store.job(job_id).id)
        # Messages that named its chunks in the meantime brought nothing.
        deployment.wake(job.model, lost=True)
        if as_json:
            print_status(deployment, job.id)
    note(f"job {job.id} goes on")
    note(f"answer it:  {worker_hint(job)}")
