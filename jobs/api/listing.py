"""Which jobs there are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from jobs.api.choosing import chosen_states
from jobs.api.job import Job
from jobs.api.opening import opened
from jobs.settings import Settings
from jobs.states import JobState


def list_jobs(
    state: JobState | str | Iterable[JobState | str] | None = None,
    limit: int = 50,
    *,
    model: str | os.PathLike[str] | None = None,
    name: str | None = None,
    since: str | timedelta | datetime | None = None,
    settings: Settings | None = None,
) -> Sequence[Job]:
    """Jobs, newest first.

    Args:
        state: only jobs in this state, or in one of these.
        limit: the newest so many.
        model: only jobs of this model.
        name: only jobs with this text in their name.
        since: only jobs submitted since then: so long ago (`8h`, a `timedelta`), or a time.

    Examples:
        >>> for job in list_jobs(["queued", "in_progress"], since="8h"):
        ...     print(job.status())
    """
    from jobs.cli.deadline import parse_since
    from jobs.cli.deployment import model_name

    states = chosen_states(JobState, state, limit)
    with opened(settings) as deployment:
        now = deployment.store.now()
        if isinstance(since, timedelta):
            since = now - since
        if isinstance(since, datetime):
            since = since.isoformat()
        found = deployment.store.list_jobs(
            states,
            limit,
            model=None if model is None else model_name(os.fspath(model)),
            name=name,
            since=None if since is None else parse_since(since, now),
        )
        return [Job(job.id, deployment.settings) for job in found]
