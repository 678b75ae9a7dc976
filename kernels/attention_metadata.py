"""Which tokens of a step attend to which blocks; made once a step, read by every layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from kernels.host_tensors import integers


@dataclass(frozen=True, slots=True)
class AttentionMetadata:
    """The shape of a step's attention.

    The step's tokens are concatenated; those of sequence `i` are
    `query_starts[i]` to `query_starts[i + 1]`, and they are the last ones of its
    `context_lens[i]` tokens. A query attends to all tokens up to and with its own, or with a
    sliding window of `w` tokens to the last `w` of those.

    Lengths are known on the host, so that nothing waits for the device.

    Attributes:
        query_starts: n + 1 offsets into the step's tokens, the first one 0.
        context_lens: n numbers of tokens in the cache after the step's tokens are written.
        block_tables: each sequence's physical blocks, at least
            ceil(context_len / block_size) of them.
        slots: [num_tokens], int64, on the device; where each token's keys and values go.
    """

    query_starts: tuple[int, ...]
    context_lens: tuple[int, ...]
    block_tables: tuple[tuple[int, ...], ...]
    slots: torch.Tensor

    @classmethod
    def build(
        cls,
        query_lens: Sequence[int],
        context_lens: Sequence[int],
        block_tables: Sequence[Sequence[int]],
        block_size: int,
        device: torch.device,
    ) -> AttentionMetadata:
        slots: list[int] = []
        for query_len, context_len, table in zip(
            query_lens, context_lens, block_tables, strict=True
        ):
            position = context_len - query_len
            if query_len == 1:  # a shorter way for most sequences of most steps
                slots.append(table[position // block_size] * block_size + position % block_size)
                continue
            while position < context_len:  # block by block
                index, offset = divmod(position, block_size)
                first = table[index] * block_size + offset
                count = min(block_size - offset, context_len - position)
                slots.extend(range(first, first + count))
                position += count
        return cls(
            query_starts=(0, *accumulate(query_lens)),
            context_lens=tuple(context_lens),
            block_tables=tuple(map(tuple, block_tables)),
            slots=integers(slots, device),
        )

    @property
    def num_sequences(self) -> int:
        return len(self.context_lens)

    @property
    def num_tokens(self) -> int:
        return self.query_starts[-1]

    def query_len(self, i: int) -> int:
        return self.query_starts[i + 1] - self.query_starts[i]

    def first_attended(self, i: int, window: int | None) -> int:
        """The oldest token that any query of sequence `i` attends to."""
        if window is None:
            return 0
        first_query = self.context_lens[i] - self.query_len(i)
        return max(0, first_query + 1 - window)
