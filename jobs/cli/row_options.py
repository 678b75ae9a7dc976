"""Options that say how the rows of an input become prompts, of jobs and of evaluations alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from jobs.cli.sampling_options import SamplingOptions
from jobs.formats import Format


@dataclass(frozen=True, kw_only=True)
class RowOptions(SamplingOptions):
    """What is not given is None."""

    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="System message of rows without one.")
    ] = None
    template: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Jinja template that makes a prompt of a row's columns."),
    ] = None
    prompt_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="The key or column that is the prompt.")
    ] = None
    limit: Annotated[int | None, typer.Option(help="Take only the first rows.")] = None
    row_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Longest time a row may take once it was begun; none by itself."
        ),
    ] = None
    chat_template_kwargs: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Variables for the chat template, as a JSON object."),
    ] = None
    chunk_rows: Annotated[
        int | None, typer.Option(help="Rows that a worker takes at a time (1 to 256).")
    ] = None
    format: Annotated[
        Format | None, typer.Option(help="Format of the input, where its name does not tell.")
    ] = None
