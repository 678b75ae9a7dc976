"""`pagemill pull`."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from jobs.cli import completion
from jobs.cli.console import console, note, plural, size
from jobs.cli.options import Json

Show = Callable[[int, int], None]


def pull(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="owner/name on the Hugging Face hub, owner/name/FILE.gguf, or smollm2-135m.",
            autocompletion=completion.models,
        ),
    ],
    revision: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="A branch, a tag or a commit; main if not given.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Bring a model to this machine. Workers find it there, even offline. Prints its folder.

    Only what would be loaded is fetched: configuration, tokenizer, and weights as safetensors. What
    was interrupted goes on where it stopped. HF_TOKEN opens gated and private models.

    \b
    Examples:
      pagemill pull HuggingFaceTB/SmolLM2-135M-Instruct
      pagemill pull smollm2-135m
      pagemill worker --model "$(pagemill pull owner/name --revision v2)"
    """
    try:
        with _bar() as show:
            pulled = _pulled(model, revision, show)
    except KeyboardInterrupt:
        note("What came so far is kept: pull again, and it goes on.")
        raise
    if as_json:
        print(json.dumps({"model": model, **pulled}))
    else:
        print(pulled["path"], flush=True)
    _tell(model, revision, pulled)


def _pulled(model: str, revision: str | None, show: Show | None) -> dict[str, Any]:
    from jobs.children import events_of, program
    from jobs.errors import ChildFailed

    total = 0
    request = {"model": model, "revision": revision}
    with contextlib.closing(events_of(program("worker.pull"), request)) as events:
        for name, told in events:
            match name:
                case "pulled":
                    return told
                case "note":
                    note(told["text"])
                case "begun":
                    total = told["bytes"]
                    if show is None:
                        note(f"{model}: {plural(told['files'], 'file')}, {size(total)}")
                case "came" if show is not None:
                    show(told["bytes"], total)
    raise ChildFailed("the process that pulls models ended without a result")


def _tell(model: str, revision: str | None, pulled: dict[str, Any]) -> None:
    if pulled["was_here"]:
        note(f"{model} is here already")
    elif pulled["files"]:
        note(f"{plural(pulled['files'], 'file')}, of which {size(pulled['fetched'])} were fetched")
    # A worker is asked for a repository by its name, and takes what its main branch is at. A file
    # of one has no name but its path.
    by_path = pulled["files"] and (revision is not None or model.lower().endswith(".gguf"))
    served = pulled["path"] if by_path else model
    note(f"serve it:  pagemill worker --model {shlex.quote(served)}")


@contextlib.contextmanager
def _bar() -> Iterator[Show | None]:
    """A progress bar in bytes; none where nobody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    with Progress(
        TextColumn("pulling"), BarColumn(), DownloadColumn(),
        TransferSpeedColumn(), TimeRemainingColumn(), console=console(sys.stderr), transient=True,
    ) as bar:  # fmt: skip
        task = bar.add_task("pulling", total=None, visible=False)
        yield lambda here, total: bar.update(task, completed=here, total=total, visible=True)
