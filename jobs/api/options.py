"""The options of `submit` and `run`, by the names that they have on the command line."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args, get_type_hints

from jobs.errors import UsageError
from jobs.formats import Format
from jobs.kinds import JobKind
from jobs.text_files import text_of

if TYPE_CHECKING:
    from jobs.cli.deployment import Deployment
    from jobs.cli.options import EngineOptions
    from jobs.submission import Submission


class SamplingArguments(TypedDict, total=False):
    """How rows are sampled where they do not say it themselves; docs/engine.md tells of each."""

    max_tokens: int | None
    min_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    logit_bias: Mapping[int, float] | Mapping[str, float] | str | None
    allowed_token_ids: Sequence[int] | None
    bad_words: Sequence[str] | None
    n: int | None
    logprobs: int | None
    prompt_logprobs: int | None
    num_beams: int | None
    length_penalty: float | None
    early_stopping: bool | Literal["true", "false", "never"] | None
    response_format: Mapping[str, Any] | str | None
    structured_outputs: Mapping[str, Any] | str | None
    stop: str | Sequence[str] | None
    include_stop_str_in_output: bool | None
    stop_token_ids: Sequence[int] | None
    ignore_eos: bool | None


class RowArguments(SamplingArguments, total=False):
    """How rows become prompts, and how they are answered: of jobs and of evaluations alike."""

    system: str | None
    template: str | Path | None
    prompt_column: str | None
    limit: int | None
    row_timeout: float | None
    chat_template_kwargs: Mapping[str, Any] | str | None
    chunk_rows: int | None
    format: Format | Literal["parquet", "jsonl"] | None
    priority: int | None
    deadline: str | timedelta | datetime | None


class SubmitArguments(RowArguments, total=False):
    """What is asked, of which rows.

    Each is the option of its name of `pagemill submit`. A JSON object may be given as a dict, a
    `deadline` as a `timedelta` or a `datetime`, and a `template` as its text, or as a `Path` of
    the file that has it. None is the same as not given.
    """

    kind: JobKind | Literal["generate", "score", "embed"] | None
    pooling: Literal["last", "mean"] | None
    no_normalize: bool | None
    name: str | None
    seed: int | None
    idempotency_key: str | None
    notify: str | Sequence[str] | None
    strict: bool | None
    served_model_name: str | Sequence[str] | None


class EngineArguments(TypedDict, total=False):
    """How a worker serves its model: the options of `pagemill worker`."""

    dtype: str | None
    device: str | None
    block_size: int | None
    num_blocks: int | None
    kv_cache_dtype: str | None
    max_model_len: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    no_prefix_cache: bool | None
    threads: int | None
    deterministic: bool | None
    overlap: bool | None
    cuda_graphs: bool | None
    gpu_memory_utilization: float | None
    swap_space: float | None
    watermark: float | None


class RunArguments(SubmitArguments, EngineArguments, total=False):
    """How the worker of a `run` serves its model, too."""


class EvaluateArguments(RowArguments, EngineArguments, total=False):
    """How the rows of an evaluation are asked and answered, and how its worker serves its model.

    Each is the option of its name of `pagemill eval run`.
    """


def check_names(given: Collection[str], known: Collection[str]) -> None:
    """See that every option exists.

    Args:
        known: all that may be given, also what is no option of the command line.

    Raises:
        UsageError: one does not.
    """
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise UsageError(f"there is no option {name!r}; {hint}")


def submission_from(
    deployment: Deployment, shown: str, model: str, given: Mapping[str, Any]
) -> Submission:
    """What the command line would make of the same options; checked where it is prepared.

    Args:
        shown: what the input is called.
        given: options that exist.

    Raises:
        UsageError: an option is nothing that can be read.
    """
    from jobs.cli.options import SubmitOptions
    from jobs.cli.submitting import submission_of

    given = {name: value for name, value in given.items() if value is not None}
    names = get_type_hints(SamplingArguments)
    sampling = {name: _as_json(value) for name, value in given.items() if name in names}
    if sampling.get("early_stopping") in ("true", "false"):  # as the command line has them
        sampling["early_stopping"] = sampling["early_stopping"] == "true"
    rest = {name: value for name, value in given.items() if name not in names}
    changes: dict[str, Any] = {"sampling": sampling}
    if isinstance(rest.get("template"), str):
        changes["template"] = rest.pop("template")
    if isinstance(rest.get("chat_template_kwargs"), Mapping):
        changes["chat_template_kwargs"] = dict(rest.pop("chat_template_kwargs"))
    if isinstance(deadline := rest.get("deadline"), timedelta):
        deadline = deployment.store.now() + deadline
    if isinstance(deadline, datetime):
        rest["deadline"] = deadline.isoformat()
    hints = get_type_hints(SubmitOptions)
    options = {name: _plain(name, value, hints[name]) for name, value in rest.items()}
    submission = submission_of(deployment, SubmitOptions(file=shown, model=model, **options))
    return dataclasses.replace(submission, **changes)


def submit_json(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a job as JSON that another process can make the same job of.

    Args:
        given: options that exist.

    Raises:
        UsageError: the file of a template cannot be read.
    """
    options = {}
    for name, value in given.items():
        match value:
            case None:
                continue
            case os.PathLike() if name == "template":
                value = text_of(Path(value))
            case timedelta():
                value = f"{value.total_seconds():.3f}s"
            case datetime():
                value = value.astimezone().isoformat()
        options[name] = _as_json(value)
    return options


def engine_options(given: Mapping[str, Any]) -> EngineOptions:
    """The options of the worker.

    Raises:
        UsageError: one is of a type that it cannot have.
    """
    from jobs.cli.options import EngineOptions

    hints = get_type_hints(EngineOptions)
    return EngineOptions(
        **{
            name: _plain(name, value, hints[name])
            for name, value in given.items()
            if value is not None
        }
    )


def _as_json(value: Any) -> Any:
    """A value as a row of JSON would have it: token ids are texts where they are keys."""
    match value:
        case Mapping():
            return {str(key): _as_json(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset() | range():
            return [_as_json(item) for item in value]
    return value


_MEANT = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a text, or the Path of a file",
    list[str]: "a list of texts",
    JobKind: f"one of {', '.join(JobKind)}",
    Format: f"one of {', '.join(Format)}",
}


def _plain(name: str, value: Any, hint: Any) -> Any:
    """A value as the command line would have it, of what it was written as."""
    kind = next(kind for kind in (*get_args(hint), hint) if kind in _MEANT)
    match value:
        case bool() if kind is bool:
            return value
        case bool():
            pass
        case str() if kind in (JobKind, Format):
            if value in list(kind):
                return kind(value)
        case str() if kind == list[str]:
            return [value]
        case str() if kind is str:
            return value
        case os.PathLike() if kind is Path:
            return Path(value)
        case int() if kind in (int, float):
            return kind(value)
        case float() if kind is float:
            return value
        case list() | tuple() if kind == list[str] and all(isinstance(v, str) for v in value):
            return list(value)
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:60]}…"
    meant = "a dict, or its JSON" if name == "chat_template_kwargs" else _MEANT[kind]
    raise UsageError(f"{name} is {shown}; it must be {meant}")
