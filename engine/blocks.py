"""KV blocks: who holds which block of the pool, and which may be taken back.

A block is in exactly one of three states. *Free*: nobody knows its content. *Referenced*: at
least one block table names it. *Cached*: no table names it, but the prefix tree still knows what
it holds; it is taken back, least recently used first, when the free blocks run out
(paged attention: Kwon et al. 2023, https://arxiv.org/abs/2309.06180).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from engine.errors import InvariantError, OutOfBlocks


class BlockPool:
    """Block ids `0 .. num_blocks - 1`, their reference counts and the order of eviction.

    Every call is O(1).

    Attributes:
        on_evict: told the id of a cached block that is taken back, before its next holder
            gets it.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.on_evict: Callable[[int], None] | None = None
        self._references = [0] * num_blocks
        self._listed = [False] * num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        # Cached blocks, the one that was released first at the front.
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` can give: free ones and cached ones."""
        return len(self._free) + len(self._idle)

    @property
    def num_cached(self) -> int:
        return len(self._idle)

    @property
    def num_used(self) -> int:
        """Blocks that at least one table names."""
        return self.num_blocks - self.num_available

    def references(self, block: int) -> int:
        return self._references[block]

    def is_listed(self, block: int) -> bool:
        """Whether the prefix tree knows the block."""
        return self._listed[block]

    def allocate(self) -> int:
        """A block for one holder; a free one, else the least recently used cached one.

        Raises:
            OutOfBlocks: every block is referenced.
        """
        if self._free:
            block = self._free.pop()
        elif self._idle:
            block, _ = self._idle.popitem(last=False)
            self._listed[block] = False
            if self.on_evict is not None:
                self.on_evict(block)
        else:
            raise OutOfBlocks(f"all {self.num_blocks} KV blocks are in use")
        self._references[block] = 1
        return block

    def retain(self, block: int) -> None:
        """Add a reference to a block that is referenced or cached."""
        if self._references[block] == 0:
            del self._idle[block]
        self._references[block] += 1

    def release(self, block: int) -> None:
        """Drop a reference; the last one makes the block cached if it is listed, else free.

        A holder releases its blocks from the last to the first. Then a cached block always
        stands behind its descendants in the order of eviction, and eviction takes leaves of the
        prefix tree only, without a search for them.
        """
        self._references[block] -= 1
        if self._references[block] == 0:
            if self._listed[block]:
                self._idle[block] = None
            else:
                self._free.append(block)

    def list_block(self, block: int) -> None:
        """The prefix tree knows this referenced block from now on."""
        self._listed[block] = True

    def unlist_block(self, block: int) -> None:
        """The prefix tree forgets this block; it is free at once if no table names it."""
        self._listed[block] = False
        if self._references[block] == 0:
            del self._idle[block]
            self._free.append(block)

    def check_invariants(self, tables: Iterable[BlockTable]) -> None:
        """Compare the counts with all the tables that exist.

        Raises:
            InvariantError: says which block is in a wrong state.
        """
        counted = [0] * self.num_blocks
        for table in tables:
            for block in table.ids:
                counted[block] += 1
        free = set(self._free)
        if len(free) != len(self._free):
            raise InvariantError("a block is twice in the free list")
        for block, references in enumerate(self._references):
            if references != counted[block]:
                raise InvariantError(
                    f"block {block} has {references} references, but {counted[block]} tables "
                    "name it"
                )
            idle, listed = block in self._idle, self._listed[block]
            if idle != (listed and references == 0):
                raise InvariantError(
                    f"block {block}: cached is {idle}, listed {listed}, references {references}"
                )
            if (block in free) != (not listed and references == 0):
                raise InvariantError(
                    f"block {block}: free is {block in free}, listed {listed}, "
                    f"references {references}"
                )
        used = sum(1 for references in self._references if references)
        if len(free) + used + len(self._idle) != self.num_blocks:
            raise InvariantError(
                f"{len(free)} free + {used} referenced + {len(self._idle)} cached blocks "
                f"are not {self.num_blocks}"
            )


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """A block whose content must be copied on the device before the step that writes to it."""

    source: int
    target: int


class BlockTable:
    """The physical block of each logical block of one sequence; one reference to each.

    Attributes:
        ids: the block ids; the same tuple until the table changes, as every step hands it on.
    """

    __slots__ = ("ids", "pool")

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.ids: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> int:
        return self.ids[index]

    def share(self, blocks: Sequence[int]) -> None:
        """Append blocks that others hold or that are cached."""
        for block in blocks:
            self.pool.retain(block)
        self.ids = (*self.ids, *blocks)

    def grow(self, count: int = 1) -> None:
        """Append new blocks.

        Raises:
            OutOfBlocks: there are fewer than `count`; the table is as before.
        """
        if count > self.pool.num_available:
            raise OutOfBlocks(
                f"{count} KV blocks wanted, {self.pool.num_available} of "
                f"{self.pool.num_blocks} available"
            )
        self.ids = (*self.ids, *(self.pool.allocate() for _ in range(count)))

    def fork(self) -> BlockTable:
        """A second table over the same blocks."""
        twin = BlockTable(self.pool)
        twin.share(self.ids)
        return twin

    def prepare_write(self, index: int) -> BlockCopy | None:
        """Make logical block `index` this table's own before a token is written to it.

        Forks share all blocks; whoever writes to the last, partly filled block gets a copy first,
        but for its last holder, who writes in place. The device does the returned copy before any
        write of the same step.

        Raises:
            OutOfBlocks: there is no block for the copy; the table is as before.
        """
        source = self.ids[index]
        if self.pool.references(source) == 1 and not self.pool.is_listed(source):
            return None
        target = self.pool.allocate()
        self.pool.release(source)
        self.ids = (*self.ids[:index], target, *self.ids[index + 1 :])
        return BlockCopy(source, target)

    def release(self) -> None:
        """Give all blocks back, the last one first (see `BlockPool.release`)."""
        for block in reversed(self.ids):
            self.pool.release(block)
        self.ids = ()
