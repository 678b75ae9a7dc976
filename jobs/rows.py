"""An input row, ready for the normalized copy, or refused."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.errors import RowError
from jobs.records import RowErrorInfo

_MAX_FIELD_CHARS = 200  # the names in it are the user's, and as long as they like


@dataclass(frozen=True, slots=True)
class Row:
    """An input row, ready for the normalized copy; texts are UTF-8.

    Exactly one of `prompt`, `messages` and `error` is set.

    Attributes:
        line: 1-based line (JSONL) or row (Parquet) of the input.
        messages: JSON list of {"role", "content", …}, in this order of keys.
        chat: JSON object of what the chat template gets beside the messages: {"tools": […],
            "template_kwargs": {…}}, each only where there is something in it.
        params: JSON object of the row's own sampling parameters.
        continuations: JSON list of the texts to score after the prompt.
        extra: JSON object of the keys that are the user's own.
    """

    line: int
    custom_id: str | None = None
    prompt: bytes | None = None
    messages: bytes | None = None
    chat: bytes | None = None
    params: bytes | None = None
    continuations: bytes | None = None
    extra: bytes | None = None
    error: RowErrorInfo | None = None

    @property
    def size(self) -> int:
        """Bytes of text in it, about."""
        size = len(self.prompt or b"") + len(self.messages or b"") + len(self.params or b"")
        size += len(self.chat or b"") + len(self.continuations or b"")
        if self.error is not None:
            size += len(self.error.message)
        return size + len(self.extra or b"") + len(self.custom_id or "")


def refused(
    line: int, error: RowError, custom_id: str | None = None, extra: bytes | None = None
) -> Row:
    """The error row of `error`."""
    field = error.field if error.field is None else error.field[:_MAX_FIELD_CHARS]
    info = RowErrorInfo(error.code, str(error), line, field)
    return Row(line, custom_id=custom_id, extra=extra, error=info)
