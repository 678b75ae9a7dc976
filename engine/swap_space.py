"""Host memory for the KV of preempted sequences: which block of it holds what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from engine.errors import InvariantError, OutOfBlocks


@dataclass(frozen=True, slots=True)
class SwappedBlocks:
    """The KV that a preempted sequence keeps in host memory.

    Attributes:
        first: logical block of the sequence that `blocks[0]` holds. Those before it were shared
            with others; they are matched again when it returns, or computed again.
        blocks: host blocks, of the logical blocks from `first` on; at least one.
        num_tokens: tokens of the sequence that had been computed. The last of `blocks` holds
            the end of them, and may be partly filled.
    """

    first: int
    blocks: tuple[int, ...]
    num_tokens: int

    def holds(self, index: int) -> bool:
        """Whether a logical block of the sequence is one of them."""
        return 0 <= index - self.first < len(self.blocks)


class SwapSpace:
    """Host blocks `0 .. num_blocks - 1`, and which of them are free.

    The lowest ones are given out first: memory is touched only as far as it was ever needed.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._given = 0  # blocks from here on were never given out
        self._returned: list[int] = []  # heap

    @property
    def num_free(self) -> int:
        return self.num_blocks - self._given + len(self._returned)

    @property
    def num_used(self) -> int:
        return self._given - len(self._returned)

    def allocate(self, count: int) -> tuple[int, ...]:
        """Blocks for one sequence.

        Raises:
            OutOfBlocks: there are fewer; nothing was given out.
        """
        if count > self.num_free:
            raise OutOfBlocks(
                f"{count} blocks of swap space wanted, {self.num_free} of {self.num_blocks} free"
            )
        blocks = []
        for _ in range(count):
            if self._returned:
                blocks.append(heappop(self._returned))
            else:
                blocks.append(self._given)
                self._given += 1
        return tuple(blocks)

    def release(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            heappush(self._returned, block)

    def check_invariants(self, held: Iterable[SwappedBlocks]) -> None:
        """Compare with what all sequences hold.

        Raises:
            InvariantError: a block is lost, or has two holders.
        """
        used = [block for swapped in held for block in swapped.blocks]
        if sorted(used + self._returned) != list(range(self._given)):
            raise InvariantError(
                f"swapped sequences hold host blocks {sorted(used)}, but of {self._given} that "
                f"were given out {sorted(self._returned)} came back"
            )
