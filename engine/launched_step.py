"""A step that the device has been given, before the host has seen what it gave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from engine.batch import NAN_LOGITS, SampledLogprobs, SampledToken, ScheduledSequence
from engine.host_copy import HostCopy
from engine.step_logprobs import StepLogprobs
from engine.step_prompts import StepPrompts, with_pieces
from kernels.greedy import NO_TOKEN
from kernels.sampling import NOTHING_LEFT


class SampledRows:
    """Rows that were sampled together.

    Args:
        sequences: of each row.
        tokens: [rows], int64, on the device.
        logprobs: what was computed for those that ask; None where none does.

    Attributes:
        tokens: as given.
    """

    def __init__(
        self,
        sequences: Sequence[ScheduledSequence],
        tokens: torch.Tensor,
        logprobs: StepLogprobs | None,
    ) -> None:
        self.tokens = tokens
        self._sequences = sequences
        self._copy = HostCopy(tokens)
        self._logprobs = logprobs

    def fetch(self) -> list[SampledToken]:
        """Wait for the tokens, in the order of the rows."""
        tokens: list[int] = self._copy.wait().tolist()
        logprobs = self._logprobs.fetch() if self._logprobs is not None else {}
        return [
            _sampled(s.request_id, token, logprobs.get(row))
            for row, (s, token) in enumerate(zip(self._sequences, tokens, strict=True))
        ]


@dataclass(frozen=True, slots=True)
class LaunchedStep:
    """What a step is going to give.

    Attributes:
        sequences: those of the batch.
        rows: those that sample, in the order of the batch.
        prompts: the pieces of prompts that are wanted; None for none.
        errors: rows whose grammar cannot be followed any more, and the error code of each.
    """

    sequences: tuple[ScheduledSequence, ...]
    rows: tuple[SampledRows, ...]
    prompts: StepPrompts | None
    errors: Mapping[int, str]

    def collect(self) -> list[SampledToken]:
        """Wait for the step; to ask again gives the same.

        Returns:
            One token for each sequence with `samples`, in the order of the batch; and with or
            between them, the pieces of prompts that are wanted.
        """
        tokens = [token for rows in self.rows for token in rows.fetch()]
        for row, code in self.errors.items():
            tokens[row] = SampledToken(tokens[row].request_id, NO_TOKEN, code)
        if self.prompts is None:
            return tokens
        return with_pieces(self.sequences, tokens, self.prompts.fetch())

    def sampling(self) -> Iterator[str]:
        """Who samples, in the order of `tokens`."""
        return (s.request_id for s in self.sequences if s.samples)

    def tokens(self) -> torch.Tensor:
        """[samples], int64, on the device: what the step samples."""
        return torch.cat([rows.tokens for rows in self.rows])


def _sampled(request_id: str, token: int, logprobs: SampledLogprobs | None) -> SampledToken:
    if token == NO_TOKEN:
        return SampledToken(request_id, NO_TOKEN, NAN_LOGITS)
    if token == NOTHING_LEFT:
        return SampledToken(request_id, NO_TOKEN, "no_token_left")
    return SampledToken(request_id, token, logprobs=logprobs)
