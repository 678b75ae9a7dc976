"""`pagemill events`."""

from __future__ import annotations

import dataclasses
import json

from jobs.cli.console import keep_whole, note, one_line, show, squeezable, table
from jobs.cli.deployment import opened
from jobs.cli.options import JobId, Json


def events(job_id: JobId, as_json: Json = False) -> None:
    """Tell who did what to a job, and when; oldest first. A deleted job needs its whole id.

    \b
    Examples:
      pagemill events job_abcdefgh
      pagemill events job_abcdefgh --json | jq '.[] | [.at, .event, .actor]'
    """
    with opened() as deployment:
        found = deployment.store.events(job_id)
    if as_json:
        shapes = [{**dataclasses.asdict(event), "at": event.at.isoformat()} for event in found]
        print(json.dumps(shapes))
        return
    if not found:
        note("nothing is written down: an older pagemill did all that was done to this job")
        return
    shown = table("when", "event", "who", "detail")
    for event in found:
        when = event.at.astimezone().isoformat(" ", "milliseconds")
        who = squeezable(one_line(event.actor))
        shown.add_row(when, event.event, who, squeezable(one_line(event.detail or "")))
    keep_whole(shown, "when", "event")
    show(shown)
