"""How many rows came to which end, and how many tokens they took."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counts:
    """Row and token counts; they add up."""

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.completed + other.completed,
            self.failed + other.failed,
            self.cancelled + other.cancelled,
            self.expired + other.expired,
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
        )

    def __sub__(self, other: Counts) -> Counts:
        return Counts(
            self.completed - other.completed,
            self.failed - other.failed,
            self.cancelled - other.cancelled,
            self.expired - other.expired,
            self.prompt_tokens - other.prompt_tokens,
            self.cached_tokens - other.cached_tokens,
            self.completion_tokens - other.completion_tokens,
        )

    @property
    def rows(self) -> int:
        return self.completed + self.failed + self.cancelled + self.expired
