"""`pagemill schedule`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from jobs.cli import completion
from jobs.cli.console import note
from jobs.cli.deployment import opened
from jobs.cli.evaluation_end import end_with
from jobs.cli.evaluation_tables import whole_json
from jobs.cli.group import Helpful
from jobs.cli.options import Json
from jobs.cli.schedule_add import add
from jobs.cli.schedule_tables import (
    next_sentence,
    schedule_json,
    show_details,
    show_list,
    whole_schedule_json,
)
from jobs.errors import ScheduleNotFound, UsageError

commands = typer.Typer(
    cls=Helpful,
    rich_markup_mode=None,
    help="""Run evaluations at times, night after night.

    What is due is begun by `pagemill beat` and by every worker.

    \b
    Example:
      pagemill schedule add nightly q.jsonl --cron @daily --model m --scorer f1
    """,
)
commands.command("add")(add)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The schedule's name.", autocompletion=completion.schedule_names
    ),
]


@commands.command("list")
def list_schedules(as_json: Json = False) -> None:
    """List schedules, with their next time and how the last one ended.

    \b
    Examples:
      pagemill schedule list
      pagemill schedule list --json | jq -r '.[].next_due_at'
    """
    with opened() as deployment:
        found = deployment.store.schedules()
        if as_json:
            print(json.dumps([schedule_json(schedule) for schedule in found]))
        elif found:
            show_list(deployment, found)
        else:
            note("no schedules")


@commands.command("show")
def show(name: Name, as_json: Json = False) -> None:
    """Show what a schedule asks, its next times, and its last runs.

    \b
    Example:
      pagemill schedule show nightly
    """
    with opened() as deployment:
        schedule = deployment.store.schedule(name)
        if as_json:
            print(json.dumps(whole_schedule_json(deployment, schedule)))
        else:
            show_details(deployment, schedule)


@commands.command("pause")
def pause(name: Name, as_json: Json = False) -> None:
    """Let no time of a schedule come until it is resumed. Asking twice does no harm.

    An evaluation that runs goes on; `pagemill eval cancel` ends it.

    \b
    Example:
      pagemill schedule pause nightly
    """
    with opened() as deployment:
        schedule = deployment.store.pause_schedule(name)
        if as_json:
            print(json.dumps(schedule_json(schedule)))
        note(f"schedule {name} is paused; `pagemill schedule resume {name}` lets it go on")


@commands.command("resume")
def resume(name: Name, as_json: Json = False) -> None:
    """Let a paused schedule go on with its next time. Those that passed are not caught up.

    \b
    Example:
      pagemill schedule resume nightly
    """
    from jobs.schedules.cron import cron_of

    with opened() as deployment:
        schedule = deployment.store.resume_schedule(name, lambda found: cron_of(found).next)
        if as_json:
            print(json.dumps(schedule_json(schedule)))
        note(next_sentence(schedule))


@commands.command("run-now")
def run_now(
    name: Name,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="Follow it to its end, take its steps, and end as `eval gate` does."
        ),
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="With --wait: give up waiting; ends with 124."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Begin an evaluation of a schedule at once; prints its id. Its times stay as they are.

    It works while the schedule is paused, too. If an evaluation of the schedule still runs, it
    is refused (75), begun after that one, or begun beside it, by the schedule's --overlap.

    \b
    Examples:
      pagemill schedule run-now nightly
      pagemill schedule run-now nightly --wait && ./deploy.sh
    """
    if timeout is not None and not wait:
        raise UsageError("--timeout is about --wait; give both")
    with opened() as deployment:
        evaluation_id = deployment.store.run_now(name)
        if not wait:
            found = deployment.store.evaluation(evaluation_id)
            print(json.dumps(whole_json(deployment, found)) if as_json else evaluation_id)
            note(f"follow it:  pagemill eval wait {evaluation_id}")
            return
        if not as_json:
            print(evaluation_id, flush=True)
        end_with(deployment, evaluation_id, as_json, timeout=timeout)


@commands.command("remove")
def remove(name: Name, as_json: Json = False) -> None:
    """Forget a schedule. Its evaluations stay, and those that run go on.

    \b
    Example:
      pagemill schedule remove nightly
    """
    with opened() as deployment:
        schedule = deployment.store.schedule(name)
        if not deployment.store.remove_schedule(name):
            raise ScheduleNotFound(f"there is no schedule {name} any more")
        if as_json:
            print(json.dumps(schedule_json(schedule)))
        note(f"schedule {name} is removed; `pagemill eval list {name}` shows its evaluations")
