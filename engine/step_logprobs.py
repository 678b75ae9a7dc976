"""Log probabilities of one step: computed for the rows that ask, fetched in one transfer."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.batch import SampledLogprobs
from engine.host_copy import HostCopy
from kernels.host_tensors import integers
from kernels.logprobs import token_logprobs


@dataclass(frozen=True, slots=True)
class StepLogprobs:
    """What the device computes for the rows of a step that ask for log probabilities.

    Attributes:
        wanted: row of the step's logits -> how many of the likeliest tokens it asks for.
        packed: [len(wanted), 1 + 2k], int32, k the most that a row asks for and the vocabulary
            has: the bits of 1 + k log probabilities (the sampled token's first), then k token
            ids.
    """

    wanted: dict[int, int]
    packed: HostCopy

    @classmethod
    def launch(
        cls, counts: Sequence[int | None], logits: torch.Tensor, tokens: torch.Tensor
    ) -> StepLogprobs | None:
        """Start the computation without waiting for it; None where no row asks.

        Args:
            counts: of each row, how many of the likeliest tokens are wanted; None for nothing.
            logits: [rows, vocab_size], as the model gave them.
            tokens: [rows], int64, what was sampled.
        """
        wanted = {i: count for i, count in enumerate(counts) if count is not None}
        if not wanted:
            return None
        if len(wanted) < len(counts):
            rows = integers(list(wanted), logits.device)
            logits, tokens = logits[rows], tokens[rows]
        found = token_logprobs(logits, tokens, max(wanted.values()))
        values = torch.cat((found.chosen[:, None], found.top), dim=-1)
        packed = torch.cat((values.view(torch.int32), found.top_ids.int()), dim=-1)
        return cls(wanted, HostCopy(packed))

    def fetch(self) -> dict[int, SampledLogprobs]:
        """Wait for the result; by row of the step's logits."""
        # Bytes go into the arrays as they are: no Python number is made here.
        rows = self.packed.wait().numpy()
        width = rows.shape[-1] // 2 + 1
        return {
            index: SampledLogprobs(
                array("f", row[:width][: 1 + count].tobytes()),
                array("i", row[width:][:count].tobytes()),
            )
            for (index, count), row in zip(self.wanted.items(), rows, strict=True)
        }
