"""`evaluate`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, get_type_hints

from jobs.api.display import watching
from jobs.api.evaluation import Evaluation
from jobs.api.following import follow_to_end
from jobs.api.opening import log, opened
from jobs.api.options import (
    EngineArguments,
    EvaluateArguments,
    check_names,
    engine_options,
    submit_json,
)
from jobs.api.submitting import with_names_of
from jobs.errors import UsageError, WorkerFailed
from jobs.records.evaluations import Role
from jobs.settings import Settings

if TYPE_CHECKING:
    from jobs.evaluation.spec import EvaluationSpec

Inputs: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
Scorers: TypeAlias = "str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]"

# What has to be there, and what says it.
_NEEDED = {"inputs": "inputs", "model": "model", "scorers": "scorers"}


@with_names_of(EvaluateArguments)
def evaluate(
    inputs: Inputs | None = None,
    *,
    model: str | os.PathLike[str] | None = None,
    scorers: Scorers | None = None,
    name: str | None = None,
    target: str | None = None,
    slices: str | Sequence[str] | None = None,
    gate: str | Sequence[str] | None = None,
    against: Role | Literal["baseline", "previous"] | None = None,
    allow_missing: int | float | str | None = None,
    notify: str | Sequence[str] | None = None,
    seed: int | None = None,
    spec: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    wait: bool = True,
    worker: bool = True,
    progress: bool = True,
    settings: Settings | None = None,
    **options: Unpack[EvaluateArguments],
) -> Evaluation:
    """Ask a model the rows of some files, score its answers, and compare them with earlier ones.

    It returns when the evaluation has ended, in whatever way: `verdict` and `state` tell. An
    interrupt ends the waiting, and the evaluation can go on later, with any worker.

    Args:
        inputs: JSONL or Parquet with a target in each row: paths, URIs, folders, patterns.
        model: a Hugging Face folder, a hub id, a `.gguf` file, or `smollm2-135m`.
        scorers: each as `--scorer` has it, or a dict: `{"scorer": "numeric", "tolerance": 0.01}`.
        name: the series that it belongs to; by the first input's name if not given.
        target: the column of the right answers; `target` if not given.
        slices: columns for each of whose values the scores are summed up, too.
        gate: rules such as `exact>=0.8`, `exact:drop<=0.02` and `exact:p<0.05`.
        against: what rules about drops compare with; the blessed baseline if not given.
        allow_missing: rows that may stay without a score: how many, or a share as a float or
            a text (`0.02`, `"2%"`).
        notify: URLs that are told of the end.
        seed: of the job and of the statistics; 0 if not given.
        spec: all of that as a dict, or the JSON file of it; what is given beside it wins.
        wait: False returns at once, and leaves the evaluation to beats and workers, or to
            `Evaluation.wait`.
        worker: answer with a worker process of our own, or leave that to those that run.
        progress: show a bar on stderr, in a terminal or a notebook.
        settings: of the deployment; of the environment if not given.
        options: those of `pagemill eval run`, by the same names.

    Raises:
        UsageError: an option cannot work, or they do not fit together.
        InputError: the rows cannot be read, or lack the target.
        WorkerFailed: the worker left before the end.
        KeyboardInterrupt: it left because it was interrupted.

    Examples:
        >>> found = evaluate("questions.jsonl", model="smollm2-135m", scorers=["exact", "f1"])
        >>> found.metrics["exact"].value
        >>> found.scores().pandas()
    """
    from jobs.cli.evaluating import goes_on
    from jobs.cli.supervising import WorkerLeft
    from jobs.evaluation.beginning import begun, series_name

    check_names(options, inspect.signature(evaluate).parameters)
    names = get_type_hints(EngineArguments)
    engine = engine_options({n: value for n, value in options.items() if n in names})
    fields = {
        "inputs": None if inputs is None else _paths(inputs),
        "model": os.fspath(model) if isinstance(model, os.PathLike) else model,
        "scorers": _scorers(scorers),
        "target": target,
        "slices": _listed(slices),
        "notify": _listed(notify),
        "seed": seed,
    }
    gating = {
        "rules": _listed(gate),
        "against": None if against is None else str(against),
        "missing": _missing(allow_missing),
    }
    asked_of_job = submit_json({n: value for n, value in options.items() if n not in names})
    with opened(settings, create=True) as deployment:
        asked = _specification(spec, fields, gating, asked_of_job, deployment.settings)
        asked.make_scorers()  # what they lack is told before a model is loaded
        begun_one = begun(deployment, asked, series_name(name, asked), log.info)
        evaluation = Evaluation(begun_one.id, deployment.settings)
        if not wait:
            return evaluation
        with watching(progress) as watcher:
            try:
                ours = engine if worker else None
                follow_to_end(deployment, watcher, evaluation.id, progress, engine=ours)
            except KeyboardInterrupt:
                watcher.tell(goes_on(evaluation.id))
                raise
            except WorkerLeft as left:
                if left.reason is None:
                    watcher.tell(goes_on(evaluation.id))
                    raise KeyboardInterrupt from None
                raise WorkerFailed(
                    f"the worker of evaluation {evaluation.id} left before its end, and it goes "
                    f"on with another one: {left.reason}"
                ) from None
        return evaluation


def _specification(
    spec: str | os.PathLike[str] | Mapping[str, Any] | None,
    fields: Mapping[str, Any],
    gating: Mapping[str, Any],
    submit: Mapping[str, Any],
    settings: Settings,
) -> EvaluationSpec:
    from jobs.evaluation.asked import asked, read_spec, scorers_with_files

    before: Mapping[str, Any] = {}
    if isinstance(spec, Mapping):
        before = scorers_with_files(spec)
    elif isinstance(spec, str | os.PathLike):
        before = read_spec(Path(spec))
    elif spec is not None:
        raise UsageError(f"spec is a {type(spec).__name__}; it must be a dict, or a path")
    return asked(before, fields, gating, submit, settings, _NEEDED)


def _paths(inputs: Any) -> list[str]:
    """The inputs as a specification has them.

    Raises:
        UsageError: they are rows, which nobody could read again.
    """
    listed = [inputs] if isinstance(inputs, str | os.PathLike) else inputs
    if isinstance(listed, list | tuple) and all(isinstance(i, str | os.PathLike) for i in listed):
        return [os.fspath(one) for one in listed]
    raise UsageError(
        f"inputs is a {type(inputs).__name__}; it must be a path or a list of paths: the rows of "
        "an evaluation are read again at each run, so write them to a file first"
    )


def _scorers(given: Any) -> list[dict[str, Any]] | None:
    from jobs.evaluation.scorer_syntax import parse_scorers

    if given is None:
        return None
    listed = [given] if isinstance(given, str | Mapping) else given
    if not isinstance(listed, list | tuple):
        raise UsageError(
            f"scorers is a {type(given).__name__}; it must be a list of texts or dicts"
        )
    return [scorer.to_json() for scorer in parse_scorers(listed, "scorers")]


def _listed(given: Any) -> Any:
    """A list of texts, of which one may stand alone; what is none is refused later."""
    if isinstance(given, str):
        return [given]
    return list(given) if isinstance(given, tuple | set | frozenset) else given


def _missing(given: int | float | str | None) -> int | float | None:
    from jobs.evaluation.asked import rows_or_share

    return rows_or_share(given, "allow_missing") if isinstance(given, str) else given
