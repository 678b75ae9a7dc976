"""Penalties of tokens that a row has already, and the counts that they need.

Repetition penalty: Keskar et al., "CTRL", 2019, arXiv:1909.05858, as transformers'
`RepetitionPenaltyLogitsProcessor` has it: tokens of the prompt count. Presence and frequency
penalties as OpenAI's API defines them: only generated tokens count.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.gpu.library import find as find_gpu


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Which tokens some sequences have, on the device.

    Attributes:
        in_prompt: [slots, vocab_size], bool, contiguous.
        generated: [slots, vocab_size], int32, contiguous, how often.
    """

    in_prompt: torch.Tensor
    generated: torch.Tensor

    @classmethod
    def empty(cls, slots: int, vocab_size: int, device: torch.device) -> TokenCounts:
        """Room for so many sequences; a slot has no meaning before `begin`."""
        shape = (slots, vocab_size)
        return cls(
            torch.empty(shape, dtype=torch.bool, device=device),
            torch.empty(shape, dtype=torch.int32, device=device),
        )

    def begin(self, slots: torch.Tensor, prompt: torch.Tensor) -> None:
        """Count anew from nothing generated.

        Args:
            slots: [k], int64.
            prompt: [p], int64, slot times `vocab_size` plus token id, for each token of a prompt.
        """
        self.in_prompt.index_fill_(0, slots, 0)
        self.generated.index_fill_(0, slots, 0)
        self.in_prompt.view(-1).index_fill_(0, prompt, 1)

    def add(self, tokens: torch.Tensor) -> None:
        """Count generated tokens.

        Args:
            tokens: [g], int64, slot times `vocab_size` plus token id; the same one may come twice.
        """
        ones = torch.ones_like(tokens, dtype=torch.int32)
        self.generated.view(-1).scatter_add_(0, tokens, ones)


@dataclass(frozen=True, slots=True)
class Penalties:
    """The penalties of some rows, all [m, 1], float32, on the device."""

    repetition: torch.Tensor
    presence: torch.Tensor
    frequency: torch.Tensor


def apply_penalties(
    scores: torch.Tensor,
    rows: torch.Tensor,
    counts: TokenCounts,
    slots: torch.Tensor,
    penalties: Penalties,
) -> None:
    """Penalize tokens in place: first repetition, then frequency and presence.

    Args:
        scores: [n, vocab_size], float32.
        rows: [m], int64, which rows of the scores are penalized, none twice.
        counts: of the tokens that the sequences have.
        slots: [m], int64, where in `counts` each of the rows is.
        penalties: of the m rows.
    """
    on_gpu = find_gpu("apply_penalties", scores.device)
    if on_gpu is not None:
        on_gpu(
            scores, rows, counts.in_prompt, counts.generated, slots,
            penalties.repetition, penalties.presence, penalties.frequency,
        )  # fmt: skip
        return
    apply_penalties_reference(scores, rows, counts, slots, penalties)


def apply_penalties_reference(
    scores: torch.Tensor,
    rows: torch.Tensor,
    counts: TokenCounts,
    slots: torch.Tensor,
    penalties: Penalties,
) -> None:
    """The specification of `apply_penalties`, of any device."""
    generated = counts.generated[slots]
    present = generated > 0
    seen = counts.in_prompt[slots] | present
    chosen = scores[rows]
    repetition = penalties.repetition
    repeated = torch.where(chosen < 0, chosen * repetition, chosen / repetition)
    chosen = torch.where(seen, repeated, chosen)
    chosen.sub_(generated * penalties.frequency).sub_(present * penalties.presence)
    scores.index_copy_(0, rows, chosen)
