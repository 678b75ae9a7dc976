"""Schedules as JSON (see docs/cli.md), as tables and as sentences."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

from jobs.cli.asked import asked_lines
from jobs.cli.console import keep_whole, note, one_line, say, show, squeezable, table
from jobs.cli.deployment import Deployment
from jobs.cli.evaluation_tables import show_list as show_evaluations
from jobs.cli.evaluation_tables import whole_json
from jobs.evaluation_shape import shown_spec
from jobs.job_shape import time_json

if TYPE_CHECKING:
    from jobs.records.evaluations import EvaluationRecord, ScheduleRecord

_NEXT = 5
_LAST = 5


def schedule_json(schedule: ScheduleRecord) -> dict[str, Any]:
    return {
        "id": schedule.id,
        "name": schedule.name,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "next_due_at": time_json(schedule.next_due_at),
        "paused_at": time_json(schedule.paused_at),
        "catch_up": schedule.catch_up.value,
        "overlap": schedule.overlap.value,
        "dataset_hash": schedule.dataset_hash,
        "created_at": time_json(schedule.created_at),
        "spec": shown_spec(schedule.spec),
    }


def whole_schedule_json(deployment: Deployment, schedule: ScheduleRecord) -> dict[str, Any]:
    """With its next times, and its last evaluations with all that came out."""
    last = deployment.store.list_evaluations(schedule_id=schedule.id, limit=_LAST)
    return {
        **schedule_json(schedule),
        "next_times": [time_json(time) for time in _next_times(schedule)],
        "evaluations": [whole_json(deployment, evaluation) for evaluation in last],
    }


def next_sentence(schedule: ScheduleRecord) -> str:
    """When it is due next, on its own clock and in UTC."""
    if schedule.paused_at is not None:
        resume = f"`pagemill schedule resume {schedule.name}` lets it go on"
        return f"schedule {schedule.name} is paused; {resume}"
    if schedule.next_due_at is None:
        return f"schedule {schedule.name} will not be due any more"
    there = _there(schedule, schedule.next_due_at)
    utc = "" if schedule.timezone == "UTC" else f" ({schedule.next_due_at:%Y-%m-%d %H:%M} UTC)"
    return f"schedule {schedule.name} is due next at {there} {schedule.timezone}{utc}"


def show_list(deployment: Deployment, schedules: Sequence[ScheduleRecord]) -> None:
    """Each with its next time on its own clock and on that of this machine."""
    names = ("name", "cron", "timezone", "next there", "next here", "last", "")
    shown = table(*names)
    for schedule in schedules:
        due_at = schedule.next_due_at
        newest = deployment.store.list_evaluations(schedule_id=schedule.id, limit=1)
        shown.add_row(
            squeezable(schedule.name),
            schedule.cron,
            schedule.timezone,
            "" if due_at is None else _there(schedule, due_at),
            "" if due_at is None else _here(due_at),
            _how(newest[0]) if newest else "",
            "" if schedule.paused_at is None else "paused",
        )
    keep_whole(shown, "cron", "next there", "next here", "last")
    show(shown)


def show_details(deployment: Deployment, schedule: ScheduleRecord) -> None:
    """All that there is to say about one."""
    spec = shown_spec(schedule.spec)
    paused = schedule.paused_at
    frozen = schedule.dataset_hash and f"{schedule.dataset_hash}; other rows fail"
    lines = [
        ("schedule", schedule.name),
        ("cron", f"{schedule.cron} ({schedule.timezone})"),
        ("paused", paused and f"since {_here(paused)}"),
        ("model", spec.get("model")),
        ("inputs", ", ".join(spec.get("inputs", []))),
        ("data set", frozen or "as it is at each run"),
        *asked_lines(spec),
        ("catch-up", schedule.catch_up.value),
        ("overlap", schedule.overlap.value),
        ("notify", ", ".join(spec.get("notify", []))),
        ("created", _here(schedule.created_at)),
    ]
    width = max(len(name) for name, value in lines if value)
    for name, value in lines:
        if value:
            say(f"{name:<{width}}  {one_line(str(value))}")
    for number, time in enumerate(_next_times(schedule)):
        label = "next" if number == 0 else ""
        say(f"{label:<{width}}  {_there(schedule, time)} {schedule.timezone}, here {_here(time)}")
    last = deployment.store.list_evaluations(schedule_id=schedule.id, limit=_LAST)
    if last:
        show_evaluations(deployment, last)
    else:
        note("it has no evaluations yet")


def _next_times(schedule: ScheduleRecord) -> list[datetime]:
    from jobs.schedules.cron import cron_of

    if schedule.next_due_at is None:
        return []
    after = islice(cron_of(schedule).after(schedule.next_due_at), _NEXT - 1)
    return [schedule.next_due_at, *after]


def _there(schedule: ScheduleRecord, moment: datetime) -> str:
    from jobs.schedules.cron import cron_of

    return f"{moment.astimezone(cron_of(schedule).zone):%Y-%m-%d %H:%M}"


def _here(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


def _how(evaluation: EvaluationRecord) -> str:
    return f"{evaluation.verdict or evaluation.state} {_here(evaluation.created_at)}"
