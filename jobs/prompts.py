"""Where the prompt of a row comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs.continuations import CONTINUATIONS
from jobs.keys import Kind, Meaning, meaning
from jobs.kinds import JobKind
from jobs.template import PromptTemplate

_PROMPT_NAMES = frozenset({"prompt", "messages"})
_MAY_BE_DATA = frozenset({Kind.UNSUPPORTED, Kind.MISSPELT, Kind.CHAT, Kind.GRAMMAR})


@dataclass(frozen=True, slots=True)
class PromptRules:
    """Where the prompt of a row comes from, and what else its job says of all rows.

    Attributes:
        system: first message of rows that have no system or developer message. It turns a bare
            prompt into a chat.
        prompt_column: the key or column that is the prompt, instead of `prompt`.
        template: makes the prompt of all the row's columns.
        models: what a line of a batch file may call the model, the job's own name first; None
            takes any name.
        kind: of the job: it decides which keys a row has.
        sampling: parameters of the job, checked, that hold where a row sets none.
    """

    system: str | None = None
    prompt_column: str | None = None
    template: PromptTemplate | None = None
    models: tuple[str, ...] | None = None
    kind: JobKind = JobKind.GENERATE
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @property
    def takes_lines(self) -> bool:
        """Whether a row may be a line of an OpenAI batch file."""
        return not self.named and self.kind is not JobKind.SCORE

    @property
    def prompt_names(self) -> tuple[str, ...]:
        """Keys that may hold the prompt."""
        if self.prompt_column is not None:
            return (self.prompt_column,)
        return ("prompt", "input") if self.kind is JobKind.EMBED else ("prompt",)

    @property
    def named(self) -> bool:
        """Whether the prompt is named by an option: `prompt` and `messages` are data then.

        So are `method`, `url` and `body`.
        """
        return self.prompt_column is not None or self.template is not None

    def meaning(self, key: str) -> Meaning:
        """What a key or column is, under these rules."""
        if key == self.prompt_column:
            return Meaning(Kind.PROMPT)
        if self.kind is JobKind.SCORE and key in CONTINUATIONS:
            return Meaning(Kind.CONTINUATIONS)
        if key in self.prompt_names and not self.named:
            return Meaning(Kind.PROMPT)
        found = meaning(key)
        if self.named and (key in _PROMPT_NAMES or found.name in _PROMPT_NAMES):
            return Meaning(Kind.DATA)
        if self.template is not None and key in self.template.names and found.kind in _MAY_BE_DATA:
            return Meaning(Kind.DATA)
        return found
