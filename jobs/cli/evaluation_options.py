"""What an evaluation is, as the options of `eval run` and `schedule add` say it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.cli import completion
from jobs.cli.row_options import RowOptions
from jobs.errors import UsageError
from jobs.records.evaluations import Role

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
        from jobs.cli.deployment import model_name
        from jobs.evaluation.inputs import absolute
        from jobs.evaluation.scorer_syntax import parse_scorers
        from jobs.evaluation.spec import EvaluationSpec
        from jobs.notifications.urls import checked_urls
        from jobs.settings import Settings

        value = {} if self.spec_file is None else _read(self.spec_file)
        given = {
            "inputs": self.inputs,
            "model": self.model,
            "target": self.target,
            "slices": self.slice,
            "notify": self.notify,
            "seed": self.seed,
            **more,
        }
        value |= {name: field for name, field in given.items() if field not in (None, [])}
        if self.scorer:
            value["scorers"] = [scorer.to_json() for scorer in parse_scorers(self.scorer)]
        value["gate"] = self._gate(value.get("gate"))
        value["submit"] = self._submit(value.get("submit"))
        for name, option in (("inputs", "INPUT"), ("model", "--model"), ("scorers", "--scorer")):
            if not value.get(name):
                raise UsageError(f"{option} is missing: give it, or a --spec that has {name}")
        inputs = value["inputs"]
        if isinstance(inputs, list) and all(isinstance(text, str) for text in inputs):
            value["inputs"] = [absolute(text) for text in inputs]
        if isinstance(value["model"], str):
            value["model"] = model_name(value["model"])
        spec = EvaluationSpec.from_json(value)
        checked_urls(spec.notify, Settings.from_env().webhook_hosts)
        return spec

    def _gate(self, before: Any) -> Any:
        """The gate of a specification, with what the options say of it."""
        given = {
            "rules": self.gate,
            "against": None if self.against is None else str(self.against),
            "missing": None if self.allow_missing is None else _missing(self.allow_missing),
        }
        given = {name: value for name, value in given.items() if value not in (None, [])}
        if not given or not (before is None or isinstance(before, dict)):
            return before
        return {**(before or {}), **given}

    def _submit(self, before: Any) -> Any:
        """The options of the job, over those of a specification."""
        names = {"priority", "deadline"} | {field.name for field in dataclasses.fields(RowOptions)}
        given = {name: getattr(self, name) for name in sorted(names)}
        if self.template is not None:
            given["template"] = _text_of(self.template)
        if self.format is not None:
            given["format"] = self.format.value
        if self.early_stopping is not None:
            given["early_stopping"] = self.early_stopping.value
        # Not by `in`: a temperature of 0 is as good as False.
        given = {
            name: option
            for name, option in given.items()
            if option is not None and option is not False and option != []
        }
        if before is None:
            return given
        return {**before, **given} if isinstance(before, dict) else before


def _missing(text: str) -> int | float:
    try:
        return float(text.removesuffix("%")) / 100 if text.endswith("%") else int(text)
    except ValueError:
        raise UsageError(
            f"--allow-missing is {text!r}; it must be a number of rows, or a share such as 2%"
        ) from None


def _read(path: Path) -> dict[str, Any]:
    """A specification that somebody wrote, with what stands in the files that its scorers name."""
    from jobs.evaluation.scorer_syntax import with_files

    try:
        value = json.loads(_text_of(path, "--spec"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--spec {path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"--spec {path} must be an object")
    if isinstance(scorers := value.get("scorers"), list):
        value["scorers"] = [with_files(scorer) for scorer in scorers]
    return value


def _text_of(path: Path, option: str = "--template") -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{option} {path} is not UTF-8: {error}") from None
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be read: {error.strerror}") from None
