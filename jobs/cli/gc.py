"""`pagemill gc`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli.console import note, plural, say
from jobs.cli.deployment import Deployment, opened
from jobs.cli.options import Json

if TYPE_CHECKING:
    from jobs.records import JobRecord
    from jobs.records.evaluations import EvaluationRecord

_SHOWN_STRANGERS = 3
# Why something goes: it ended long ago, it was deleted and has files, it was never submitted.
_OLD, _DELETED, _ORPHAN = "retention", "deleted", "never_submitted"
_SCRATCH = "killed"  # a temporary folder

Gone = tuple[str, str, str]  # whose files, why, and the same in words


def gc(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what would be removed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove what is kept no longer, and what was left behind.

    Workers and beats do the same every hour. Prints a line for each. Jobs and evaluations are kept
    for ever unless PAGEMILL_RETENTION is set, such as to 30d.

    \b
    Examples:
      pagemill gc --dry-run
      PAGEMILL_RETENTION=30d pagemill gc
    """
    # Of which folders nobody needs, a database that was lost would know nothing.
    with opened(required=True) as deployment:
        found: list[dict[str, str]] = []
        deleted = {job_id for job_id, _ in deployment.store.deletions()}
        for name, why, words in chain(
            _delete_old(deployment, dry_run),
            _delete_old_evaluations(deployment, dry_run),
            _finish_deletions(deployment, deleted, dry_run),
            _remove_orphans(deployment, dry_run),
            _remove_scratch(dry_run),
        ):
            found.append({"id": name, "reason": why})
            if not as_json:
                say(f"{name}  {words}")
        _tell_strangers(deployment)
    if as_json:
        print(json.dumps(found))
    number = Counter(gone["reason"] for gone in found)
    be = "would be" if dry_run else "are"
    folders = plural(sum(number[why] for why in (_DELETED, _ORPHAN, _SCRATCH)), "folder")
    evaluations = sum(g["reason"] == _OLD and g["id"].startswith("eval_") for g in found)
    jobs = plural(number[_OLD] - evaluations, "job")
    also = f" and {plural(evaluations, 'evaluation')}" if evaluations else ""
    note(f"{jobs}{also} {be} deleted, {folders} removed")


def _delete_old(deployment: Deployment, dry_run: bool) -> Iterator[Gone]:
    from jobs.housekeeping import delete_old

    retention = deployment.settings.retention_seconds
    if retention is None:
        note("PAGEMILL_RETENTION is not set: jobs that ended are kept for ever")
        return
    for job in deployment.store.jobs_that_ended(retention):
        if dry_run or delete_old(deployment.store, job.id, retention):
            yield job.id, _OLD, f"{job.state} {_when(job)}"


def _delete_old_evaluations(deployment: Deployment, dry_run: bool) -> Iterator[Gone]:
    from jobs.housekeeping import delete_old_evaluation

    store, retention = deployment.store, deployment.settings.retention_seconds
    for old in [] if retention is None else store.evaluations_that_ended(retention):
        assert retention is not None
        if dry_run or delete_old_evaluation(store, old.id, retention):
            yield old.id, _OLD, f"{old.state} {_when(old)}"


def _when(job: JobRecord | EvaluationRecord) -> str:
    assert job.finished_at is not None
    return job.finished_at.astimezone().isoformat(" ", "seconds")


def _finish_deletions(deployment: Deployment, deleted: set[str], dry_run: bool) -> Iterator[Gone]:
    """Remove files of jobs that were deleted, now or by a command that was killed.

    Args:
        deleted: jobs that were deleted before this command, which tells of the others by itself.
    """
    from jobs.deletion import finish_deletions

    if not dry_run:
        finish_deletions(deployment.store, deployment.storage)
        deleted -= {job_id for job_id, _ in deployment.store.deletions()}
    how = "still there" if dry_run else "gone, too"
    for job_id in sorted(deleted):
        yield job_id, _DELETED, f"was deleted, its files are {how}"


def _remove_orphans(deployment: Deployment, dry_run: bool) -> Iterator[Gone]:
    from jobs.orphans import orphans, remove_orphan

    for name in orphans(deployment.store, deployment.storage):
        if dry_run or remove_orphan(deployment.store, deployment.storage, name):
            yield name, _ORPHAN, "was never submitted"


def _remove_scratch(dry_run: bool) -> Iterator[Gone]:
    """Temporary folders of this machine that killed commands left."""
    from jobs.scratch import abandoned, remove_abandoned

    for folder in abandoned() if dry_run else remove_abandoned():
        yield str(folder), _SCRATCH, "is of a command that was killed"


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
