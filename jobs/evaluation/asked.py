"""What somebody asks of an evaluation, in parts: a specification, and what is said beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs.errors import UsageError
from jobs.evaluation.inputs import absolute
from jobs.evaluation.scorer_syntax import with_files
from jobs.evaluation.spec import EvaluationSpec, ScorerSpec
from jobs.notifications.urls import checked_urls
from jobs.settings import Settings
from jobs.text_files import text_of


def asked(
    before: Mapping[str, Any],
    given: Mapping[str, Any],
    gate: Mapping[str, Any],
    submit: Mapping[str, Any],
    settings: Settings,
    needed: Mapping[str, str],
) -> EvaluationSpec:
    """The specification that somebody means here, ready to be run anywhere.

    Args:
        before: a specification, or a part of one.
        given, gate, submit: fields of the whole, of its gate, and of the options of its job, over
            those of before. None and empty lists are not given, but for `submit`.
        needed: what has to be there, by the names of the fields, as people are told of it.

    Raises:
        UsageError: they do not make an evaluation.
    """
    from jobs.cli.deployment import model_name

    value = {**before, **_without_nothing(given)}
    value["gate"] = _over(value.get("gate"), _without_nothing(gate))
    before_submit = value.get("submit")
    value["submit"] = _over({} if before_submit is None else before_submit, submit)
    for name, shown in needed.items():
        if not value.get(name):
            raise UsageError(f"{shown} is missing: give it, or a --spec that has {name}")
    inputs = value["inputs"]
    if isinstance(inputs, list) and all(isinstance(text, str) for text in inputs):
        value["inputs"] = [absolute(text) for text in inputs]
    if isinstance(value["model"], str):
        value["model"] = model_name(value["model"])
    spec = EvaluationSpec.from_json(value)
    spec = replace(spec, scorers=tuple(_judged_as_here(scorer) for scorer in spec.scorers))
    checked_urls(spec.notify, settings.webhook_hosts)
    return spec


def read_spec(path: Path) -> dict[str, Any]:
    """A specification that somebody wrote, with what stands in the files that its scorers name.

    Raises:
        UsageError: it cannot be read, or is no object.
    """
    try:
        value = json.loads(text_of(path, "--spec"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--spec {path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"--spec {path} must be an object")
    return scorers_with_files(value)


def scorers_with_files(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A specification, with what stands in the files that its scorers name."""
    value = dict(spec)
    if isinstance(scorers := value.get("scorers"), list | tuple):
        value["scorers"] = [with_files(scorer) for scorer in scorers]
    return value


def rows_or_share(text: str, option: str = "--allow-missing") -> int | float:
    """How many rows may be missing: a number of them, or a share such as `2%`.

    Raises:
        UsageError: it is neither.
    """
    try:
        return float(text.removesuffix("%")) / 100 if text.endswith("%") else int(text)
    except ValueError:
        raise UsageError(
            f"{option} is {text!r}; it must be a number of rows, or a share such as 2%"
        ) from None


def _judged_as_here(scorer: ScorerSpec) -> ScorerSpec:
    """A judge whose model is a path is named by an absolute one, as workers name it."""
    from jobs.cli.deployment import model_name

    judge = scorer.options.get("model")
    if not isinstance(judge, str):
        return scorer
    return replace(scorer, options={**scorer.options, "model": model_name(judge)})


def _without_nothing(given: Mapping[str, Any]) -> dict[str, Any]:
    # Not by `in`: a seed of 0 is as good as False.
    return {name: value for name, value in given.items() if value is not None and value != []}


def _over(before: Any, given: Mapping[str, Any]) -> Any:
    """What was said before, and over it what is given; what can be none stays as it is."""
    if not given or not (before is None or isinstance(before, Mapping)):
        return before
    return {**(before or {}), **given}
