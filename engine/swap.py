"""Keeps the KV of preempted sequences in host memory until they return."""

from __future__ import annotations

from engine.block_manager import BlockManager
from engine.blocks import BlockCopy
from engine.scheduler_stats import Counters
from engine.sequence import Sequence
from engine.swap_cost import SwapCost
from engine.swap_space import SwappedBlocks, SwapSpace


class Swap:
    """Plans the copies between KV blocks and host blocks.

    Only blocks that a sequence alone holds are copied. Those that others hold too stay where
    they are, and are matched in the prefix tree when it returns. If they have left the tree by
    then, they are computed again, and what comes after them is not.

    Args:
        num_blocks: size of the swap space; 0 for none.
    """

    def __init__(
        self, blocks: BlockManager, num_blocks: int, cost: SwapCost, counts: Counters
    ) -> None:
        self.space = SwapSpace(num_blocks)
        self._blocks = blocks
        self._cost = cost
        self._counts = counts
        self._out: list[BlockCopy] = []
        self._in: list[BlockCopy] = []

    def swap_out(self, sequence: Sequence) -> bool:
        """Plan copies of a victim's own blocks, before they are released.

        False if computing them again costs less, or the space does not suffice; then nothing
        has changed.
        """
        first = self._blocks.num_shared(sequence)
        count = self._blocks.blocks_for(sequence.num_computed_tokens) - first
        lost = sequence.num_computed_tokens - first * self._blocks.block_size
        if not 0 < count <= self.space.num_free or not self._cost.is_lower(count, lost):
            return False
        hosts = self.space.allocate(count)
        own = sequence.block_table.ids[first : first + count]
        self._out += map(BlockCopy, own, hosts)
        sequence.swapped = SwappedBlocks(first, hosts, sequence.num_computed_tokens)
        self._counts.swap_outs += 1
        return True

    def swap_in(self, sequence: Sequence) -> None:
        """Plan the way back for a sequence that was admitted; its host blocks are free again."""
        swapped = sequence.swapped
        if swapped is None:
            return
        depth, table = sequence.shared_blocks, sequence.block_table
        for index, host in enumerate(swapped.blocks, swapped.first):
            if index >= depth:
                self._in.append(BlockCopy(host, table[index]))
        if swapped.holds(depth):
            sequence.num_computed_tokens = swapped.num_tokens
        elif depth < swapped.first:
            sequence.gap = swapped.first * self._blocks.block_size, swapped.num_tokens
        self._counts.swap_ins += 1
        self.forget(sequence)

    def brings(self, sequence: Sequence) -> bool:
        """Whether some of its blocks come from the host in the step that is being planned.

        They come last in it, too late to be copied.
        """
        targets = {copy.target for copy in self._in}
        return not targets.isdisjoint(sequence.block_table.ids)

    def forget(self, sequence: Sequence) -> None:
        """The sequence needs nothing in host memory any more."""
        if sequence.swapped is not None:
            self.space.release(sequence.swapped.blocks)
            sequence.swapped = None

    def take_copies(self) -> tuple[tuple[BlockCopy, ...], tuple[BlockCopy, ...]]:
        """The copies to the host and from it that were planned since the last call.

        Those to the host come first of all in a step: others may be given the blocks in it.
        """
        copies = tuple(self._out), tuple(self._in)
        self._out.clear()
        self._in.clear()
        return copies
