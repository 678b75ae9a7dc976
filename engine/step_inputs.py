"""The numbers of a step: collected on the host, then on the device in one copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from engine.batch import PENDING, ScheduledSequence
from engine.launched_step import LaunchedStep
from kernels.attention_metadata import AttentionMetadata
from kernels.attention_plan import AttentionPlan, PlannedAttention
from kernels.packed_arrays import PackedArrays

NOT_PENDING = -1
NOWHERE = -1  # in place of a slot


class Padding(Protocol):
    """The shape that a step is brought to, and where it has to lie.

    Attributes:
        tokens: how many there are with the padding.
        samples: the most that there may be.
    """

    @property
    def tokens(self) -> int: ...

    @property
    def samples(self) -> int: ...

    def memory(self, num_bytes: int) -> torch.Tensor:
        """[at least `num_bytes`], uint8, on the device."""
        ...


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

    def of_samples(self, rows: torch.Tensor) -> torch.Tensor:
        """[samples, ...], of what there is for each of `logit_rows`."""
        return rows if self.samples is None else rows.index_select(0, self.samples)

    def newest(self) -> torch.Tensor:
        """[samples], int64: the last token of each sequence that samples."""
        return self.token_ids[self.of_samples(self.logit_rows)]


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

    @classmethod
    def of_padding(cls, block_size: int) -> StepArrays:
        """Of one token that is written nowhere, and whose answer is worth nothing."""
        nowhere = torch.tensor([NOWHERE])
        attention = AttentionMetadata.build([1], [1], [(0,)], block_size, nowhere.device)
        one = _int64([0])
        return cls(one, one, _int64([]), None, None, replace(attention, slots=nowhere))

    def upload(
        self,
        device: torch.device,
        attention: PlannedAttention,
        before: LaunchedStep | None = None,
        padding: Padding | None = None,
    ) -> StepInputs:
        """Bring a step to its device, in one copy; nothing waits for it.

        Args:
            attention: of this step.
            before: the step that samples the pending tokens, where there are any.
            padding: where the step is padded; then all tensors but `logit_rows` and `samples` are.
        """
        packed, tokens = PackedArrays(), len(self.token_ids)
        none, size = _int64([]), tokens if padding is None else padding.tokens
        room = None if padding is None else size
        packed.add(_padded(self.token_ids, size, 0))
        packed.add(_padded(self.positions, size, 0))
        packed.add(_padded(self.attention.slots.numpy(), size, NOWHERE))
        packed.add(none if self.pending is None else self.pending, room)
        packed.add(self.logit_rows, room)
        packed.add(
            none if self.samples is None else self.samples,
            None if padding is None else padding.samples,
        )
        for array, capacity in attention.arrays:
            packed.add(array, capacity)
        token_ids, positions, slots, pending, logit_rows, samples, *rest = packed.upload(
            device, None if padding is None else padding.memory(packed.num_bytes)
        )
        if before is not None and self.pending is not None:
            _fill_pending(token_ids[:tokens], pending[:tokens], before.tokens())
        return StepInputs(
            token_ids,
            positions,
            logit_rows[: len(self.logit_rows)],
            None if self.samples is None else samples[: len(self.samples)],
            attention.on_device(slots, rest),
        )


def _padded(numbers: np.ndarray, size: int, filler: int) -> np.ndarray:
    if len(numbers) == size:
        return numbers
    return np.concatenate((numbers, np.full(size - len(numbers), filler, dtype=np.int64)))


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
