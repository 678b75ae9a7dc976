"""A step that the device has been given, before the host has seen what it gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from engine.batch import NAN_LOGITS, PENDING, SampledLogprobs, SampledToken, ScheduledSequence
from engine.host_copy import HostCopy
from engine.step_logprobs import StepLogprobs
from engine.step_prompts import StepPrompts, with_pieces
from kernels.greedy import NO_TOKEN
from kernels.host_tensors import integers
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

    def fill_pending(
        self, token_ids: torch.Tensor, sequences: Sequence[ScheduledSequence]
    ) -> torch.Tensor:
        """Put the tokens that this step samples into the next one, without waiting for them.

        Args:
            token_ids: [num_tokens], int64, on the device, of the next step.
            sequences: of the next step.

        Returns:
            [num_tokens], int64; `token_ids` itself where nothing is pending. Of a sequence whose
            token cannot be trusted it is some token: what the next step gives is discarded.
        """
        wanted, place = {}, 0
        for s in sequences:
            if s.token_ids == (PENDING,):
                wanted[s.request_id] = place
            place += len(s.token_ids)
        if not wanted:
            return token_ids
        sampling = (s.request_id for s in self.sequences if s.samples)
        rows = {request_id: row for row, request_id in enumerate(sampling) if request_id in wanted}
        where = (tuple(wanted.values()), tuple(rows[name] for name in wanted))
        places, sources = integers(where, token_ids.device)
        sampled = torch.cat([rows.tokens for rows in self.rows])
        return token_ids.index_copy(0, places, sampled[sources].clamp(min=0))


def _sampled(request_id: str, token: int, logprobs: SampledLogprobs | None) -> SampledToken:
    if token == NO_TOKEN:
        return SampledToken(request_id, NO_TOKEN, NAN_LOGITS)
    if token == NOTHING_LEFT:
        return SampledToken(request_id, NO_TOKEN, "no_token_left")
    return SampledToken(request_id, token, logprobs=logprobs)
