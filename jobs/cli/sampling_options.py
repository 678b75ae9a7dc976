"""Options of `submit` and `run` that say how a job's rows are sampled."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer


class EarlyStopping(StrEnum):
    """When beam search ends, as it is typed."""

    TRUE = "true"
    FALSE = "false"
    NEVER = "never"


_EARLY = {EarlyStopping.TRUE: True, EarlyStopping.FALSE: False}


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """Each field is the parameter of its name; what is not given is None, False or empty."""

    max_tokens: Annotated[
        int | None,
        typer.Option(help="Most tokens of an answer. Of all of these, a row's own come first."),
    ] = None
    min_tokens: Annotated[
        int | None, typer.Option(help="Do not end an answer before so many tokens.")
    ] = None
    temperature: Annotated[
        float | None, typer.Option(help="0 takes the likeliest token each time.")
    ] = None
    top_k: Annotated[int | None, typer.Option(help="Sample among the K likeliest tokens.")] = None
    top_p: Annotated[
        float | None, typer.Option(help="Sample among the likeliest tokens of this total.")
    ] = None
    min_p: Annotated[
        float | None,
        typer.Option(help="Sample among tokens this many times as likely as the likeliest."),
    ] = None
    repetition_penalty: Annotated[
        float | None,
        typer.Option(help="Over 1: make tokens of prompt and answer less likely (0.01 to 100)."),
    ] = None
    presence_penalty: Annotated[
        float | None,
        typer.Option(help="Over 0: make tokens that the answer has less likely (-2 to 2)."),
    ] = None
    frequency_penalty: Annotated[
        float | None, typer.Option(help="The same for each time that it has them (-2 to 2).")
    ] = None
    logit_bias: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Added to the logits of tokens: '{\"50256\": -100}'."),
    ] = None
    allowed_token_ids: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="Take this token and no others; repeatable."),
    ] = None
    bad_words: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Never complete this text; repeatable."),
    ] = None
    n: Annotated[int | None, typer.Option("--n", help="Answers a row gets (1 to 128).")] = None
    logprobs: Annotated[
        int | None,
        typer.Option(help="Tell log probabilities, and so many of the likeliest tokens (0 to 20)."),
    ] = None
    prompt_logprobs: Annotated[
        int | None, typer.Option(help="The same for the tokens of the prompt.")
    ] = None
    num_beams: Annotated[
        int | None, typer.Option(help="Search by so many beams (1 to 64); --n best are answers.")
    ] = None
    length_penalty: Annotated[
        float | None, typer.Option(help="Over 0 beam search favours long answers (1 by itself).")
    ] = None
    early_stopping: Annotated[
        EarlyStopping | None, typer.Option(help="When beam search ends (false by itself).")
    ] = None
    response_format: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="What answers have to be, as in OpenAI's API."),
    ] = None
    structured_outputs: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="The same, as in vLLM: a regex, a choice, a grammar."),
    ] = None
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="End an answer before this text; repeatable."),
    ] = None
    include_stop_str_in_output: Annotated[
        bool,
        typer.Option("--include-stop-str-in-output", help="End it behind that text instead."),
    ] = False
    stop_token_ids: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="End an answer at this token; repeatable."),
    ] = None
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Do not end at an end-of-text token.")
    ] = False

    def sampling(self) -> dict[str, Any]:
        """The sampling parameters that were given."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(SamplingOptions)}
        given = {
            name: value
            for name, value in values.items()
            if value is not None and value is not False and value != []
        }
        if self.early_stopping is not None:
            given["early_stopping"] = _EARLY.get(self.early_stopping, self.early_stopping.value)
        return given
