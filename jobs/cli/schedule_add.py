"""`pagemill schedule add`."""

from __future__ import annotations

import dataclasses
import json
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli.console import note, plural, say
from jobs.cli.deployment import opened
from jobs.cli.evaluation_options import EvaluationOptions
from jobs.cli.options import Json, with_groups
from jobs.cli.schedule_tables import next_sentence, schedule_json
from jobs.errors import UsageError
from jobs.records.evaluations import CatchUp, Overlap

if TYPE_CHECKING:
    from jobs.evaluation.spec import EvaluationSpec


class OnChange(StrEnum):
    """What becomes of an evaluation whose rows are not those that were there at `add`."""

    FAIL = "fail"
    FOLLOW = "follow"


_DATASETS = {OnChange.FAIL: "frozen", OnChange.FOLLOW: "follow"}


@with_groups
def add(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Of the schedule, and of the series of its evaluations.",
            show_default=False,
        ),
    ],
    cron: Annotated[
        str,
        typer.Option(
            metavar="CRON",
            help="When: minute, hour, day of the month, month, day of the week; or @daily, …",
            show_default=False,
        ),
    ],
    timezone: Annotated[
        str, typer.Option(metavar="ZONE", help="The clock of CRON, such as Europe/Berlin.")
    ] = "UTC",
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="INPUT", help="The same as an INPUT without it; repeatable."),
    ] = None,
    on_change: Annotated[
        OnChange | None,
        typer.Option(
            help="If the rows are others than now: fail (if not given), or take them as they are.",
            show_default=False,
        ),
    ] = None,
    catch_up: Annotated[
        CatchUp,
        typer.Option(
            help="Of times that pass while neither a beat nor a worker runs: skip all, run the "
            "latest, or run all."
        ),
    ] = CatchUp.LATEST,
    overlap: Annotated[
        Overlap | None,
        typer.Option(
            help="If an evaluation of the schedule still runs at the next time: skip that time, "
            "wait, or allow both. skip if not given; wait with --catch-up all.",
            show_default=False,
        ),
    ] = None,
    paused: Annotated[
        bool, typer.Option("--paused", help="Let no time come before it is resumed.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Take the place of the schedule of this name.")
    ] = False,
    as_json: Json = False,
    *,
    options: EvaluationOptions,
) -> None:
    """Evaluate a model at times, as `eval run` does at once.

    All of it is tried now, but for the model: the rows are read, and options that cannot work
    are refused. What is due is begun by `pagemill beat` and by every worker.

    \b
    Examples:
      pagemill schedule add nightly q.jsonl --cron @daily --model m --scorer f1
      pagemill schedule add weekly --spec math.json --cron '0 5 * * MON'
      pagemill schedule add hourly --spec math.json --cron @hourly --catch-up skip
    """
    from jobs.evaluation.beginning import warn_of_baseline
    from jobs.evaluation.dataset import describe
    from jobs.ids import new_id
    from jobs.schedules.cron import parse_cron
    from jobs.schedules.policies import overlap_for
    from jobs.store.schedules import NewSchedule

    _check_name(name)
    times = parse_cron(cron, timezone)
    given = dataclasses.replace(options, inputs=[*(options.inputs or []), *(input or [])])
    spec = given.spec(dataset=None if on_change is None else _DATASETS[on_change])
    _check_deadline(spec)
    spec.make_scorers()
    with opened(create=True) as deployment:
        doubts = [doubt for model in spec.models() if (doubt := deployment.doubt_of(model))]
        rows = describe(deployment, spec)
        schedule = deployment.store.add_schedule(
            NewSchedule(
                id=new_id("sched"),
                name=name,
                cron=times.expression,
                timezone=timezone,
                spec=spec.to_json(),
                dataset_hash=rows.hash if spec.dataset == "frozen" else None,
                catch_up=catch_up,
                overlap=overlap_for(overlap, catch_up),
                next_time=times.next,
                paused=paused,
            ),
            replace=replace,
        )
        refused = f", {rows.refused:,} of which cannot be answered" if rows.refused else ""
        files = plural(len(rows.files), "file")
        note(f"{plural(rows.rows, 'row')} in {files}{refused}; data set {rows.hash[:12]}")
        for doubt in doubts:
            note(f"Warning: {doubt}")
        warn_of_baseline(deployment, spec, name, note)
    if as_json:
        print(json.dumps(schedule_json(schedule)))
    else:
        say(next_sentence(schedule))
    note(f"try it:   pagemill schedule run-now {name} --wait")
    note("what begins it: `pagemill beat`, or any worker")


def _check_name(name: str) -> None:
    from jobs.evaluation.rules import NAME

    if re.fullmatch(NAME, name) is None:
        raise UsageError(
            f"the name {name!r} must be letters, digits, dots, dashes and underscores, at most "
            "64 of them, and begin with a letter or a digit"
        )


def _check_deadline(spec: EvaluationSpec) -> None:
    from jobs.durations import parse_duration

    deadline = spec.submit.get("deadline")
    if isinstance(deadline, str) and parse_duration(deadline.strip()) is None:
        raise UsageError(
            f"--deadline {deadline!r} is no duration (90m, 8h, 2d); a schedule comes again and "
            "again, and each of its evaluations has that long"
        )
