"""`pagemill gc`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli.console import note, plural, say
from jobs.cli.deployment import Deployment, opened

if TYPE_CHECKING:
    from jobs.records import JobRecord

_SHOWN_STRANGERS = 3


def gc(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what would be removed.")
    ] = False,
) -> None:
    """Remove jobs whose retention is over, and what killed commands left in the storage.

    Workers and beats do the same every hour. Prints a line for each job. Jobs are kept for ever
    unless PAGEMILL_RETENTION is set, such as to 30d.

    \b
    Examples:
      pagemill gc --dry-run
      PAGEMILL_RETENTION=30d pagemill gc
    """
    with opened() as deployment:
        deleted = _delete_old(deployment, dry_run)
        unfinished = _finish_deletions(deployment, dry_run)
        removed = _remove_orphans(deployment, dry_run)
        _tell_strangers(deployment)
    be = "would be" if dry_run else "are"
    note(f"{plural(deleted, 'job')} {be} deleted, {plural(removed + unfinished, 'folder')} removed")


def _delete_old(deployment: Deployment, dry_run: bool) -> int:
    from jobs.housekeeping import delete_old

    retention = deployment.settings.retention_seconds
    if retention is None:
        note("PAGEMILL_RETENTION is not set: jobs that ended are kept for ever")
        return 0
    done = 0
    for job in deployment.store.jobs_that_ended(retention):
        if dry_run or delete_old(deployment.store, job.id, retention):
            say(f"{job.id}  {job.state} {_when(job)}")
            done += 1
    return done


def _when(job: JobRecord) -> str:
    assert job.finished_at is not None
    return job.finished_at.astimezone().isoformat(" ", "seconds")


def _finish_deletions(deployment: Deployment, dry_run: bool) -> int:
    """Remove files of jobs that were deleted, now or by a command that was killed."""
    from jobs.deletion import finish_deletions

    if dry_run:
        found = deployment.store.deletions()
        for job_id, _ in found:
            say(f"{job_id}  was deleted, its files are still there")
        return len(found)
    return finish_deletions(deployment.store, deployment.storage)


def _remove_orphans(deployment: Deployment, dry_run: bool) -> int:
    from jobs.orphans import orphans, remove_orphan

    done = 0
    for name in orphans(deployment.store, deployment.storage):
        if dry_run or remove_orphan(deployment.store, deployment.storage, name):
            say(f"{name}  was never submitted")
            done += 1
    return done


def _tell_strangers(deployment: Deployment) -> None:
    from jobs.orphans import strangers

    found = strangers(deployment.store, deployment.storage)
    if not found:
        return
    shown = ", ".join(found[:_SHOWN_STRANGERS])
    more = ", …" if len(found) > _SHOWN_STRANGERS else ""
    note(
        f"{plural(len(found), 'folder')} of jobs that this database does not know: {shown}{more}. "
        "They stay, as another database may know them; if none does, remove them by hand"
    )
