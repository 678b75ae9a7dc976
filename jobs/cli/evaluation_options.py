"""What an evaluation is, as the options of `eval run` and `schedule add` say it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.cli import completion
from jobs.cli.row_options import RowOptions
from jobs.records.evaluations import Role
from jobs.text_files import text_of

if TYPE_CHECKING:
    from jobs.evaluation.spec import EvaluationSpec


EvaluationId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The evaluation's id; its start is enough.",
        autocompletion=completion.evaluation_ids,
    ),
]


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(RowOptions):
    """What is asked of which model, and how the answers are scored."""

    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT...",
            help="JSONL or Parquet with a target in each row: paths, URIs, folders, patterns such "
            "as 'evals/*.parquet' (in quotes).",
            show_default=False,
        ),
    ] = None
    spec_file: Annotated[
        Path | None,
        typer.Option(
            "--spec",
            metavar="FILE",
            help="JSON with all that these options say; options beside it win.",
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A Hugging Face folder, a hub id, a .gguf file, or smollm2-135m.",
            show_default=False,
            autocompletion=completion.models,
        ),
    ] = None
    scorer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCORER",
            help="NAME, NAME:key=value,key=value, JSON, or @file.json; repeatable.",
        ),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Where the right answers are; target if not given."),
    ] = None
    slice: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Sum the scores up by its values, too; repeatable."),
    ] = None
    gate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE",
            help="What has to hold: 'exact>=0.8', 'exact:drop<=0.02', 'exact:p<0.05'; repeatable.",
        ),
    ] = None
    against: Annotated[
        Role | None,
        typer.Option(
            help="What rules about drops compare with: the blessed baseline (if not given), or "
            "the previous evaluation.",
            show_default=False,
        ),
    ] = None
    allow_missing: Annotated[
        str | None,
        typer.Option(
            metavar="ROWS",
            help="Rows that may stay without a score: a number, or a share such as 2%; none if "
            "not given.",
        ),
    ] = None
    notify: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="POST to it when the evaluation has ended; repeatable."),
    ] = None
    seed: Annotated[
        int | None, typer.Option(help="Seed of the job and of the statistics; 0 if not given.")
    ] = None
    priority: Annotated[int | None, typer.Option(help="Jobs with a higher one go first.")] = None
    deadline: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="When to give the job up: 90m, 8h, 2d after it begins."),
    ] = None

    def spec(self, **more: Any) -> EvaluationSpec:
        """What the options ask for.

        Args:
            more: fields of the specification that have options elsewhere; None is not given.

        Raises:
            UsageError: they do not make an evaluation.
        """
        from jobs.evaluation.asked import asked, read_spec, rows_or_share
        from jobs.evaluation.rules import parse_rule
        from jobs.evaluation.scorer_syntax import parse_scorers
        from jobs.settings import Settings

        for rule in self.gate or ():
            parse_rule(rule, "--gate")  # called as it was typed; a specification has gate.rules
        given = {
            "inputs": self.inputs,
            "model": self.model,
            "scorers": [scorer.to_json() for scorer in parse_scorers(self.scorer or ())],
            "target": self.target,
            "slices": self.slice,
            "notify": self.notify,
            "seed": self.seed,
            **more,
        }
        gate = {
            "rules": self.gate,
            "against": None if self.against is None else str(self.against),
            "missing": None if self.allow_missing is None else rows_or_share(self.allow_missing),
        }
        before = {} if self.spec_file is None else read_spec(self.spec_file)
        return asked(before, given, gate, self._submit(), Settings.from_env(), _NEEDED)

    def _submit(self) -> dict[str, Any]:
        """The options of the job."""
        names = {"priority", "deadline"} | {field.name for field in dataclasses.fields(RowOptions)}
        given = {name: getattr(self, name) for name in sorted(names)}
        if self.template is not None:
            given["template"] = text_of(self.template)
        if self.format is not None:
            given["format"] = self.format.value
        if self.early_stopping is not None:
            given["early_stopping"] = self.early_stopping.value
        # Not by `in`: a temperature of 0 is as good as False.
        return {
            name: option
            for name, option in given.items()
            if option is not None and option is not False and option != []
        }


# What has to be there, and which option says it.
_NEEDED = {"inputs": "INPUT", "model": "--model", "scorers": "--scorer"}
