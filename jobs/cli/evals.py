"""`pagemill eval`."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Annotated

import typer

from jobs.cli import completion
from jobs.cli.console import note, plural, say
from jobs.cli.deployment import Deployment, opened
from jobs.cli.eval_compare import compare
from jobs.cli.eval_rescore import rescore
from jobs.cli.eval_run import run
from jobs.cli.eval_scores import scores
from jobs.cli.evaluating import cancel as cancel_whole
from jobs.cli.evaluating import ended, exit_code
from jobs.cli.evaluation_end import end_with
from jobs.cli.evaluation_options import EvaluationId
from jobs.cli.evaluation_tables import (
    show_details,
    show_list,
    summary,
    whole_json,
)
from jobs.cli.group import Helpful
from jobs.cli.options import Json
from jobs.errors import ScheduleNotFound
from jobs.records.evaluations import EvaluationRecord, EvaluationState, Verdict

commands = typer.Typer(
    cls=Helpful,
    rich_markup_mode=None,
    help="""Evaluate models: ask, score, compare with earlier runs.

    \b
    Example:
      pagemill eval run questions.jsonl --model smollm2-135m --scorer exact
    """,
)
commands.command("run")(run)


@commands.command("list")
def list_evaluations(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Only those of this series.",
            autocompletion=completion.evaluation_names,
            show_default=False,
        ),
    ] = None,
    state: Annotated[
        list[EvaluationState] | None,
        typer.Option(
            metavar="STATE",
            help=f"Only those in this state; repeatable: {', '.join(EvaluationState)}.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 50,
    as_json: Json = False,
) -> None:
    """List evaluations, newest first, with their first score.

    \b
    Examples:
      pagemill eval list nightly
      pagemill eval list --state failed --json | jq -r '.[].id'
    """
    with opened() as deployment:
        found = deployment.store.list_evaluations(name, state or (), limit=limit)
        if as_json:
            print(json.dumps([whole_json(deployment, evaluation) for evaluation in found]))
        elif found:
            show_list(deployment, found)
        else:
            note("no such evaluations" if name or state else "no evaluations")


@commands.command("show")
def show(evaluation_id: EvaluationId, as_json: Json = False) -> None:
    """Show an evaluation: its state, its scores, and its gate.

    \b
    Example:
      pagemill eval show eval_abcdefgh
    """
    with opened() as deployment:
        found = deployment.store.evaluation(evaluation_id)
        if as_json:
            print(json.dumps(whole_json(deployment, found)))
        else:
            show_details(deployment, found)


@commands.command("wait")
def wait(
    evaluation_id: EvaluationId,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Give up waiting; ends with 124.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Wait until an evaluation has ended, and end as `eval gate`. Its scores are shown.

    Meanwhile its steps are taken here, too, so that no beat is needed; its rows are answered by
    workers. Ctrl-C ends the waiting (130), not the evaluation.

    \b
    Examples:
      pagemill eval wait eval_abcdefgh
      pagemill eval wait eval_abcdefgh --timeout 3600 --json
    """
    with opened() as deployment:
        found = deployment.store.evaluation(evaluation_id)
        end_with(deployment, found.id, as_json, timeout=timeout)


commands.command("scores")(scores)
commands.command("rescore")(rescore)
commands.command("compare")(compare)


@commands.command("bless")
def bless(
    evaluation_id: EvaluationId,
    remove: Annotated[bool, typer.Option("--remove", help="Take a blessing back.")] = False,
    as_json: Json = False,
) -> None:
    """Make a completed evaluation the baseline of its name. Later ones are compared with it.

    The last blessing counts. Rules of a gate that are about drops need a baseline.

    \b
    Examples:
      pagemill eval bless eval_abcdefgh
      pagemill eval bless eval_abcdefgh --remove
    """
    with opened() as deployment:
        found = deployment.store.bless(evaluation_id, remove=remove)
        if as_json:
            print(json.dumps(whole_json(deployment, found)))
        if not remove and found.verdict in (Verdict.REGRESSED, Verdict.INCOMPLETE):
            broken = sum(finding["passed"] is False for finding in found.findings)
            are = f"{plural(broken, 'rule')} of its gate {'is' if broken == 1 else 'are'} broken"
            note(
                f"Warning: its verdict is {found.verdict}, {are} (`pagemill eval gate {found.id}` "
                "tells which); later ones are compared with it all the same"
            )
        if not remove:
            _warn_of_schedule(deployment, found)
        be = "is not a baseline any more" if remove else f"is the baseline of {found.name}"
        note(f"evaluation {found.id} {be}")
        if remove:
            _tell_baseline(deployment, found.name)


def _warn_of_schedule(deployment: Deployment, blessed: EvaluationRecord) -> None:
    """Warn if the gate of the schedule compares what the new baseline does not have."""
    from jobs.evaluation.beginning import warn_of_baseline
    from jobs.evaluation.spec import EvaluationSpec

    with contextlib.suppress(ScheduleNotFound):
        schedule = deployment.store.schedule(blessed.name)
        spec = EvaluationSpec.from_json(schedule.spec)
        warn_of_baseline(deployment, spec, blessed.name, note)


def _tell_baseline(deployment: Deployment, name: str) -> None:
    """What a series is compared with, now that a blessing is gone."""
    baseline = deployment.store.baseline_of(name)
    if baseline is not None:
        note(f"the baseline of {name} is {baseline.id}")
    else:
        note(
            f"{name} has no baseline any more: rules of its gate about drops say nothing until one "
            "is blessed"
        )


@commands.command("gate")
def gate(evaluation_id: EvaluationId, as_json: Json = False) -> None:
    """Tell by the exit code what the gate of an evaluation says.

    0: passed, or no gate was asked for; 10: a rule is broken; 11: too many rows have no score;
    12: it failed or was cancelled, so that there is nothing to judge; 75: it has not ended.

    \b
    Example:
      pagemill eval gate eval_abcdefgh && ./deploy.sh
    """
    with opened() as deployment:
        found = ended(deployment, evaluation_id)
    verdict = None if found.verdict is None else found.verdict.value
    if as_json:
        findings = [dict(finding) for finding in found.findings]
        print(json.dumps({"id": found.id, "verdict": verdict, "findings": findings}))
    else:
        for finding in found.findings:
            say(finding["sentence"])
        say(f"verdict: {verdict or f'none, it is {found.state}'}")
        if found.error_message:
            note(summary(found))
    raise typer.Exit(exit_code(found))


@commands.command("cancel")
def cancel(evaluation_id: EvaluationId, as_json: Json = False) -> None:
    """End an evaluation early, and the jobs that it still has. Asking twice does no harm.

    \b
    Example:
      pagemill eval cancel eval_abcdefgh
    """
    with opened() as deployment:
        found = cancel_whole(deployment, deployment.store.evaluation(evaluation_id).id)
        if as_json:
            print(json.dumps(whole_json(deployment, found)))
        note(summary(found))


@commands.command("delete")
def delete(
    evaluation_ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...",
            help="Ids of evaluations; their starts are enough.",
            autocompletion=completion.evaluation_ids,
        ),
    ],
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask; only a terminal is asked.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove evaluations that have ended, with their scores, for good. Their jobs are kept.

    \b
    Example:
      pagemill eval delete eval_abcdefgh eval_bcdefghi
    """
    from jobs.deletion import finish_deletions

    with opened() as deployment:
        found = {e.id: e for e in (ended(deployment, given) for given in evaluation_ids)}
        if not yes and sys.stdin.isatty():
            for evaluation in found.values():
                note(summary(evaluation))
            typer.confirm(f"Delete {plural(len(found), 'evaluation')}?", abort=True, err=True)
        for evaluation_id in found:
            deployment.store.delete_evaluation(evaluation_id)
        finish_deletions(deployment.store, deployment.storage)
        for name in dict.fromkeys(e.name for e in found.values() if e.blessed_at is not None):
            _tell_baseline(deployment, name)
    if as_json:
        print(json.dumps([{"id": evaluation_id} for evaluation_id in found]))
    for evaluation_id in found:
        note(f"evaluation {evaluation_id} is deleted")
