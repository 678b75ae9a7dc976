"""An evaluation that somebody asks for once: its name, and its row in SQL."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from jobs.errors import UsageError
from jobs.evaluation.dataset import describe
from jobs.evaluation.gate import scorers_without
from jobs.evaluation.rules import NAME
from jobs.evaluation.spec import EvaluationSpec
from jobs.ids import new_id
from jobs.records.evaluations import EvaluationRecord, Role, Trigger

if TYPE_CHECKING:
    from jobs.cli.deployment import Deployment


def series_name(name: str | None, spec: EvaluationSpec) -> str:
    """The name of the series: the one that was given, or by that of the first input.

    Raises:
        UsageError: it can be none.
    """
    if name is None:
        stem = PurePosixPath(spec.inputs[0]).name.split(".")[0]
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:64] or "evaluation"
    if not isinstance(name, str) or re.fullmatch(NAME, name) is None:
        raise UsageError(
            f"--name is {name!r}; it must be letters, digits, dots, dashes and underscores, at "
            "most 64 of them, and begin with a letter or a digit"
        )
    return name


def warn_of_baseline(
    deployment: Deployment, spec: EvaluationSpec, name: str, tell: Callable[[str], None]
) -> None:
    """Warn of a baseline that lacks what the gate is to compare with it."""
    if spec.gate is None or spec.gate.against is not Role.BASELINE:
        return
    baseline = deployment.store.baseline_of(name)
    if baseline is None:
        return
    known = {score.scorer for score in deployment.store.evaluation_scores(baseline.id)}
    if lacking := scorers_without(spec.gate, known):
        tell(
            f"Warning: {baseline.id}, the baseline of {name}, has no scores of "
            f"{' and '.join(lacking)}, which the gate compares with it: what comes is incomplete "
            "until one that has them is blessed (`pagemill eval bless`)"
        )


def begun(
    deployment: Deployment, spec: EvaluationSpec, name: str, tell: Callable[[str], None]
) -> EvaluationRecord:
    """A new evaluation, whose rows can be read; anybody may drive it from now on.

    Args:
        name: of its series.
        tell: takes sentences about its rows and its id.

    Raises:
        InputError, UsageError: its rows cannot be read, the options of its job cannot work, or no
            worker can find its model.
    """
    from jobs.cli.console import plural

    doubts = [doubt for model in spec.models() if (doubt := deployment.doubt_of(model))]
    found = describe(deployment, spec)
    warn_of_baseline(deployment, spec, name, deployment.tell)
    files = plural(len(found.files), "file")
    refused = f", {found.refused:,} of which cannot be answered" if found.refused else ""
    tell(f"{plural(found.rows, 'row')} in {files}{refused}; data set {found.hash[:12]}")
    evaluation_id = new_id("eval")
    deployment.store.insert_evaluation(
        evaluation_id, name=name, spec=spec.to_json(), trigger=Trigger.ONCE
    )
    tell(f"evaluation {evaluation_id} of {name}")
    for doubt in doubts:
        deployment.tell(f"Warning: {doubt}")
    return deployment.store.evaluation(evaluation_id)
