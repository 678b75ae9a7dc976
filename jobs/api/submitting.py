"""`submit` and `run`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, get_type_hints

from jobs.api.display import watching
from jobs.api.given import Input, opened_input
from jobs.api.job import Job
from jobs.api.opening import log, opened
from jobs.api.options import (
    RunArguments,
    SubmitArguments,
    check_names,
    engine_options,
    submission_from,
)
from jobs.errors import WorkerFailed
from jobs.settings import Settings

if TYPE_CHECKING:
    from jobs.cli.deployment import Deployment
    from jobs.records import JobRecord

_F = TypeVar("_F", bound=Callable[..., Any])


def with_names_of(arguments: type) -> Callable[[_F], _F]:
    """Let `help()` and completion in a notebook name the options, as type checkers do."""

    def named(function: _F) -> _F:
        signature = inspect.signature(function)
        own = list(signature.parameters.values())[:-1]
        options = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=getattr(hint, "__forward_arg__", hint),  # as it is written
            )
            for name, hint in arguments.__annotations__.items()
        ]
        vars(function)["__signature__"] = signature.replace(parameters=[*own, *options])
        return function

    return named


@with_names_of(SubmitArguments)
def submit(
    data: Input,
    *,
    model: str | os.PathLike[str],
    settings: Settings | None = None,
    **options: Unpack[SubmitArguments],
) -> Job:
    """Validate rows and queue them as a job; a worker answers it.

    Rows that cannot be answered become error rows, and are told of in a warning of the log
    `pagemill.jobs`. With an `idempotency_key` that a job has, that job is returned.

    Args:
        data: a path or URI as for `pagemill submit`; dicts in a list, or from an iterator, which
            is read once; a pyarrow table; a data frame of pandas or Polars.
        model: a Hugging Face folder, a hub id, a `.gguf` file, or `smollm2-135m`.
        settings: of the deployment; of the environment if not given.
        options: those of `pagemill submit`, by the same names.

    Raises:
        UsageError: an option cannot work.
        InputError: the rows are refused as a whole. Nothing is left behind.

    Examples:
        >>> job = submit("prompts.jsonl", model="smollm2-135m", max_tokens=64)
        >>> job = submit([{"prompt": "A haiku about rivers"}], model="smollm2-135m")
        >>> job = submit(frame, model="smollm2-135m", prompt_column="review", system="Be brief.")
    """
    check_names(options, inspect.signature(submit).parameters)
    with opened(settings, create=True) as deployment:
        job = _queued(deployment, data, model, options)
        return Job(job.id, deployment.settings)


@with_names_of(RunArguments)
def run(
    data: Input,
    *,
    model: str | os.PathLike[str],
    progress: bool = True,
    settings: Settings | None = None,
    **options: Unpack[RunArguments],
) -> Job:
    """Submit rows, answer them with a worker process of our own, and wait until all are done.

    An interrupt lets the worker finish the chunks that it works on and leave, and a second one
    makes it leave at once; the job can go on later, with any worker.

    Args:
        data, model, settings: as those of `submit`.
        progress: show a bar on stderr, in a terminal or a notebook.
        options: those of `pagemill run`, by the same names.

    Raises:
        WorkerFailed: the worker left before the end of the job: it cannot serve the model.
        KeyboardInterrupt: it left because it was interrupted.

    Examples:
        >>> job = run([{"prompt": "A haiku about rivers"}], model="smollm2-135m", max_tokens=64)
        >>> print(next(iter(job.results()))["text"])
    """
    from jobs.cli.run import answer
    from jobs.cli.supervising import WorkerLeft

    check_names(options, inspect.signature(run).parameters)
    names = get_type_hints(SubmitArguments)
    engine = engine_options({name: v for name, v in options.items() if name not in names})
    asked = {name: value for name, value in options.items() if name in names}
    with opened(settings, create=True) as deployment:
        job = _queued(deployment, data, model, asked, answered_here=True)
        try:
            if not job.state.terminal:
                with watching(progress) as watcher:
                    watched = replace(deployment, tell=watcher.tell)
                    answer(watched, job, engine, nullcontext(watcher.show))
        except WorkerLeft as left:
            if left.reason is None:
                raise KeyboardInterrupt from None
            raise WorkerFailed(
                f"the worker of job {job.id} left before its end: {left.reason}"
            ) from None
        return Job(job.id, deployment.settings)


def _queued(
    deployment: Deployment,
    data: Any,
    model: str | os.PathLike[str],
    options: Mapping[str, Any],
    *,
    answered_here: bool = False,
) -> JobRecord:
    from jobs.cli.submitting import queue_job, told_of_refused

    with opened_input(data, options.get("format")) as source:
        shown = source if isinstance(source, str) else source.name
        submission = submission_from(deployment, shown, os.fspath(model), options)
        doubt = deployment.doubt_of(submission.model, here=answered_here)
        job, new = queue_job(deployment, replace(submission, input=source))
    if new is None:
        log.info("already submitted: job %s is %s; nothing was queued", job.id, job.state)
    else:
        if lines := told_of_refused(deployment, new):
            log.warning("job %s: %s", job.id, "\n".join(lines))
        if doubt:
            log.warning("job %s: %s", job.id, doubt)
    deployment.wake(job.model)
    return job
