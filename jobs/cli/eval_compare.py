"""`pagemill eval compare`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.cli import completion
from jobs.cli.console import note, one_line, say, show, table
from jobs.cli.deployment import Deployment, opened
from jobs.cli.evaluating import completed
from jobs.cli.evaluation_tables import difference
from jobs.cli.options import Json
from jobs.errors import UsageError

if TYPE_CHECKING:
    from jobs.evaluation.scores_file import ScoresFile
    from jobs.records.evaluations import ComparisonRecord, EvaluationRecord

_SHOWN_CHARACTERS = 70

_Before = Annotated[
    str,
    typer.Argument(
        metavar="BEFORE",
        help="Id of an evaluation; its start is enough.",
        autocompletion=completion.evaluation_ids,
    ),
]
_After = Annotated[
    str,
    typer.Argument(
        metavar="AFTER",
        help="Id of the one that is compared with it.",
        autocompletion=completion.evaluation_ids,
    ),
]


def compare(
    before: _Before,
    after: _After,
    limit: Annotated[
        int, typer.Option(min=0, help="Show so many rows that lost, and as many that gained.")
    ] = 3,
    as_json: Json = False,
) -> None:
    """Compare two evaluations row by row.

    It tells how the scores differ, and which rows changed.

    Rows are pairs if they have the same prompt, target and custom_id, whatever system message
    their jobs have. What is told is the second less the first.

    \b
    Examples:
      pagemill eval compare eval_abcdefgh eval_bcdefghi
      pagemill eval compare eval_abcdefgh eval_bcdefghi --limit 50 --json
    """
    with opened() as deployment:
        first, second = completed(deployment, before), completed(deployment, after)
        then, now = (_file(deployment, evaluation) for evaluation in (first, second))
        comparisons = _compared(first, second, then, now)
        if not comparisons:
            raise UsageError(f"{first.id} and {second.id} have no scorer of the same name")
        changed = _changed(then, now, [c.scorer for c in comparisons], limit)
    if as_json:
        print(json.dumps(_json(first, second, comparisons, changed)))
        return
    _show(comparisons, changed)
    if first.dataset_hash != second.dataset_hash:
        note("the two have different data sets; the rows that both have are compared")


def _file(deployment: Deployment, evaluation: EvaluationRecord) -> ScoresFile:
    from jobs.evaluation.scores_file import ScoresFile

    assert evaluation.scores_path is not None
    return ScoresFile(deployment.storage, evaluation.scores_path)


def _compared(
    first: EvaluationRecord, second: EvaluationRecord, then: ScoresFile, now: ScoresFile
) -> list[ComparisonRecord]:
    from jobs.evaluation.scoring import compared
    from jobs.evaluation.spec import EvaluationSpec
    from jobs.records.evaluations import Role

    spec = EvaluationSpec.from_json(second.spec)
    return compared(now, then, Role.PREVIOUS, first.id, spec.make_scorers(), spec.seed)


def _changed(
    then: ScoresFile, now: ScoresFile, scorers: list[str], limit: int
) -> dict[str, list[dict[str, Any]]]:
    """By scorer, the rows whose scores changed most: losses first."""
    from jobs.evaluation.compare import flips, pair

    pairing = pair(now.keys(), then.keys())
    found = {
        name: flips(pairing, now.side(name).values, then.side(name).values, limit)
        for name in scorers
    }
    columns = ["row_index", "custom_id", "prompt", "target", "answer"]
    after = now.rows([flip.now for each in found.values() for flip in each], columns)
    before = then.rows([flip.then for each in found.values() for flip in each], ["answer"])
    return {
        name: [
            {
                **{k: after[flip.now][k] for k in columns[:-1]},
                "before": {"score": flip.before, "answer": before[flip.then]["answer"]},
                "after": {"score": flip.after, "answer": after[flip.now]["answer"]},
            }
            for flip in each
        ]
        for name, each in found.items()
    }


def _json(
    first: EvaluationRecord,
    second: EvaluationRecord,
    comparisons: list[ComparisonRecord],
    changed: dict[str, list[dict[str, Any]]],
) -> dict[str, Any]:
    from jobs.evaluation_shape import comparison_json

    shapes = []
    for comparison in comparisons:
        shape = comparison_json(comparison)
        del shape["with"], shape["evaluation_id"]
        shapes.append({**shape, "changed": changed[comparison.scorer]})
    return {"before": first.id, "after": second.id, "scorers": shapes}


def _show(comparisons: list[ComparisonRecord], changed: dict[str, list[dict[str, Any]]]) -> None:
    numbers = ("pairs", "better", "worse", "unpaired", "difference", "95% interval")
    shown = table("scorer", *numbers, right=numbers)
    for c in comparisons:
        interval = "" if c.low is None else f"[{c.low:+.4f}, {c.high:+.4f}]"
        counts = (f"{count:,}" for count in (c.pairs, c.better, c.worse, c.unpaired))
        shown.add_row(c.scorer, *counts, difference(c), interval)
    show(shown)
    for scorer, rows in changed.items():
        for row in rows:
            before, after = row["before"], row["after"]
            say(f"{scorer}  row {row['row_index']}  {before['score']:g} -> {after['score']:g}")
            say(f"  prompt  {_end_of(row['prompt'])}")
            say(f"  target  {_brief(row['target'])}")
            say(f"  before  {_brief(before['answer'])}")
            say(f"  after   {_brief(after['answer'])}")


def _brief(text: str | None) -> str:
    line = one_line(text or "")
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[: _SHOWN_CHARACTERS - 1]}…"


def _end_of(prompt: str) -> str:
    """What is asked stands at the end; what all prompts begin with is no news."""
    line = one_line(prompt)
    return line if len(line) <= _SHOWN_CHARACTERS else f"…{line[1 - _SHOWN_CHARACTERS :]}"
