"""The numbers of a step: collected on the host, then on the device in one copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from engine.batch import PENDING, ScheduledSequence
from engine.launched_step import LaunchedStep
from kernels.attention_metadata import AttentionMetadata
from kernels.packed_arrays import PackedArrays
from kernels.paged_attention import AttentionPlan

NOT_PENDING = -1
Plan = Callable[[AttentionMetadata], AttentionPlan]


@dataclass(frozen=True, slots=True)
class StepInputs:
    """One step's tensors, on the device.

    Attributes:
        token_ids, positions: [num_tokens], int64.
        logit_rows: [rows], int64, the last token of each sequence that samples, each once.
        samples: [samples], int64, which of the rows each sample is drawn from; None where each
            has its own.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    logit_rows: torch.Tensor
    samples: torch.Tensor | None
    plan: AttentionPlan

    def newest(self) -> torch.Tensor:
        """[samples], int64: the last token of each sequence that samples."""
        rows = self.logit_rows if self.samples is None else self.logit_rows[self.samples]
        return self.token_ids[rows]


@dataclass(frozen=True, slots=True)
class StepArrays:
    """The same on the host, before attention is planned.

    Attributes:
        token_ids, positions, logit_rows, samples: see `StepInputs`.
        pending: [num_tokens], int64: for a token that the step before samples its place among
            that step's samples, else `NOT_PENDING`; None where there is no such token.
        attention: which tokens attend to what; its slots are on the host.
    """

    token_ids: np.ndarray
    positions: np.ndarray
    logit_rows: np.ndarray
    samples: np.ndarray | None
    pending: np.ndarray | None
    attention: AttentionMetadata

    @classmethod
    def collect(
        cls,
        sequences: Sequence[ScheduledSequence],
        block_size: int,
        before: LaunchedStep | None = None,
    ) -> StepArrays:
        """Of a step that may follow one which has not given its tokens yet."""
        token_ids: list[int] = []
        positions: list[int] = []
        logit_rows: list[int] = []
        samples: list[int] = []
        shapes: list[tuple[int, int, tuple[int, ...]]] = []
        pending: dict[int, str] = {}
        for s in sequences:
            count = len(s.token_ids)
            if count:  # a fork's logits are those of the sequence before it
                if s.token_ids == (PENDING,):
                    pending[len(token_ids)] = s.request_id
                end = s.start + count
                token_ids += s.token_ids
                positions += range(s.start, end)
                shapes.append((count, end, s.block_table))
                if s.samples:
                    logit_rows.append(len(token_ids) - 1)
            if s.samples:
                samples.append(len(logit_rows) - 1)
        query_lens, context_lens, tables = zip(*shapes, strict=True)
        return cls(
            token_ids=_int64(token_ids),
            positions=_int64(positions),
            logit_rows=_int64(logit_rows),
            samples=_int64(samples) if len(samples) > len(logit_rows) else None,
            pending=_places(pending, len(token_ids), before) if pending and before else None,
            attention=AttentionMetadata.build(
                query_lens, context_lens, tables, block_size, torch.device("cpu")
            ),
        )

    def upload(self, device: torch.device, before: LaunchedStep | None, plan: Plan) -> StepInputs:
        """Bring a step to its device; nothing waits for it.

        Args:
            before: the step that samples the pending tokens, where there are any.
            plan: of `kernels.paged_attention`, given metadata with slots on the device.
        """
        none = _int64([])
        packed = PackedArrays()
        for array in (
            self.token_ids,
            self.positions,
            self.attention.slots.numpy(),
            self.logit_rows,
            none if self.samples is None else self.samples,
            none if self.pending is None else self.pending,
        ):
            packed.add(array)
        token_ids, positions, slots, logit_rows, samples, pending = packed.upload(device)
        if before is not None and self.pending is not None:
            _fill_pending(token_ids, pending, before.tokens())
        return StepInputs(
            token_ids,
            positions,
            logit_rows,
            None if self.samples is None else samples,
            plan(replace(self.attention, slots=slots)),
        )


def _fill_pending(token_ids: torch.Tensor, pending: torch.Tensor, sampled: torch.Tensor) -> None:
    """Put the tokens that a step samples into the next one, in place, without waiting for them.

    Of a sequence whose token cannot be trusted it is some token: what the next step gives is
    discarded.

    Args:
        token_ids, pending: [num_tokens], of the next step.
        sampled: [samples], of the step before it.
    """
    found = sampled[pending.clamp(min=0)].clamp_(min=0)
    token_ids.copy_(torch.where(pending == NOT_PENDING, token_ids, found))


def _places(pending: dict[int, str], num_tokens: int, before: LaunchedStep) -> np.ndarray:
    wanted = set(pending.values())
    rows = {name: row for row, name in enumerate(before.sampling()) if name in wanted}
    places = np.full(num_tokens, NOT_PENDING, dtype=np.int64)
    places[list(pending)] = [rows[name] for name in pending.values()]
    return places


def _int64(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)
