"""`pagemill retry`."""

from __future__ import annotations

from jobs.cli.console import note, plural
from jobs.cli.deployment import opened
from jobs.cli.options import JobId, Json
from jobs.cli.shapes import print_status
from jobs.cli.worker import worker_hint


def retry(job_id: JobId, as_json: Json = False) -> None:
    """Answer the rows again that got no answer, as a new version. Prints the job's id.

    Rows that were refused at submit would be refused again: mend them in the file and submit it
    again. The versions published so far stay as they are; where the newest one failed, its rows
    are answered again, upon the version before it.

    \b
    Example:
      pagemill retry job_abcdefgh && pagemill wait job_abcdefgh
    """
    from jobs.retry import plan_retry

    with opened() as deployment:
        store = deployment.store
        before = store.job(job_id)
        plan, counts = plan_retry(store, deployment.storage, job_id)
        job = store.reopen(store.job(job_id).id, plan, counts)
        deployment.wake(job.model)
        if as_json:
            print_status(deployment, job.id)
        else:
            print(job.id, flush=True)
    if before.state == "failed":
        note(f"version {before.version} had failed; it is left as it is")
    note(f"{plural(counts.rows, 'row')} queued again, for version {job.version}")
    note(f"answer it:  {worker_hint(job)}")
