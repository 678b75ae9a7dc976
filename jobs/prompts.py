"""Where the prompt of a row comes from."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.keys import Kind, Meaning, meaning
from jobs.template import PromptTemplate

_PROMPT_NAMES = frozenset({"prompt", "messages"})
_MAY_BE_DATA = frozenset({Kind.UNSUPPORTED, Kind.MISSPELT, Kind.CHAT})


@dataclass(frozen=True, slots=True)
class PromptRules:
    """Where the prompt of a row comes from.

    Attributes:
        system: first message of rows that have no system or developer message. It turns a bare
            prompt into a chat.
        prompt_column: the key or column that is the prompt, instead of `prompt`.
        template: makes the prompt of all the row's columns.
        models: what a line of a batch file may call the model, the job's own name first; None
            takes any name.
    """

    system: str | None = None
    prompt_column: str | None = None
    template: PromptTemplate | None = None
    models: tuple[str, ...] | None = None

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
        found = meaning(key)
        if self.named and (key in _PROMPT_NAMES or found.name in _PROMPT_NAMES):
            return Meaning(Kind.DATA)
        if self.template is not None and key in self.template.names and found.kind in _MAY_BE_DATA:
            return Meaning(Kind.DATA)
        return found
