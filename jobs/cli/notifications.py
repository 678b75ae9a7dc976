"""`pagemill notifications`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli import completion
from jobs.cli.console import keep_whole, note, one_line, plural, show, squeezable, table
from jobs.cli.deployment import Deployment, opened
from jobs.cli.options import Json
from jobs.cli.shapes import notification_json
from jobs.errors import EvaluationNotFound, JobNotFound, UsageError
from jobs.shown_urls import shown_webhook

if TYPE_CHECKING:
    from jobs.records.evaluations import NotificationRecord


def notifications(
    about: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]",
            help="Only of this job or evaluation; its start is enough.",
            autocompletion=completion.job_ids,
        ),
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only those that are not tried any more.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 50,
    send_again: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Send this one (dlv_…) at once, whatever became of it; alone.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List what is told to URLs, and what became of it. The newest is first.

    Those that are pending are sent by `pagemill beat` and by the workers. Of a URL only the host
    is shown. With --send-again it ends with 0 if the URL took it, and with 1 if not.

    \b
    Examples:
      pagemill notifications job_abcdefgh
      pagemill notifications --failed --json | jq -r '.[].error'
      pagemill notifications --send-again dlv_abcdefghijklmnopqrst
    """
    with opened() as deployment:
        if send_again is not None:
            if about is not None or failed:
                raise UsageError("--send-again sends one notification; give nothing but its id")
            raise typer.Exit(_send(deployment, send_again, as_json))
        found = deployment.store.notifications(
            None if about is None else _whole_id(deployment, about), failed=failed, limit=limit
        )
    if as_json:
        print(json.dumps([notification_json(told) for told in found]))
        return
    if not found:
        note("no such notifications" if about is not None or failed else "no notifications")
        return
    shown = table("id", "about", "event", "to", "state")
    for told in found:
        to = squeezable(shown_webhook(told.url))
        shown.add_row(told.id, told.subject, told.event, to, squeezable(one_line(fate(told))))
    keep_whole(shown, "id", "about", "event")
    show(shown)


def fate(told: NotificationRecord) -> str:
    """`pending after 2 attempts: HTTP 500`."""
    after = f" after {plural(told.attempts, 'attempt')}" if told.attempts else ""
    why = f": {told.error}" if told.error else ""
    match told.state:
        case "delivered":
            return "delivered"
        case "failed":
            return f"given up{after}{why}"
    return f"pending{after}{why}"


def _whole_id(deployment: Deployment, given: str) -> str:
    """The id of the job or the evaluation that is meant; also of one that was deleted.

    Raises:
        JobNotFound, EvaluationNotFound: there is none, and nothing was told of one of that id.
    """
    store = deployment.store
    try:
        if given.startswith("eval_"):
            return store.evaluation(given).id
        return store.job(given).id
    except (JobNotFound, EvaluationNotFound):
        if store.notifications(given, limit=1):
            return given
        raise


def _send(deployment: Deployment, notification_id: str, as_json: bool) -> int:
    """Send one, and say what came of it; the exit code."""
    from jobs.notifications.delivering import Deliverer

    again = deployment.store.send_again(notification_id)
    deliverer = Deliverer(deployment.settings, deployment.store, deployment.storage)
    deliverer.deliver_due(again.subject)
    told = deployment.store.notification(notification_id)
    if as_json:
        print(json.dumps(notification_json(told)))
    else:
        note(f"{told.id} to {shown_webhook(told.url)}: {fate(told)}")
    return 0 if told.state == "delivered" else 1
