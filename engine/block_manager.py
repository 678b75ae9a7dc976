"""Gives sequences their KV blocks and keeps the prefix tree in step with them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from engine.blocks import BlockCopy, BlockPool, BlockTable
from engine.errors import InvariantError, OutOfBlocks
from engine.prefix_tree import PrefixNode, PrefixTree
from engine.sequence import NEVER, Sequence, SequenceStatus


class BlockManager:
    """The block pool and, with prefix caching, the prefix tree over it."""

    def __init__(self, num_blocks: int, block_size: int, *, enable_prefix_caching: bool) -> None:
        self.pool = BlockPool(num_blocks)
        self.block_size = block_size
        self.tree = PrefixTree(self.pool) if enable_prefix_caching else None
        self._copies: dict[int, BlockCopy] = {}  # by target

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def look_up(self, sequence: Sequence) -> PrefixNode | None:
        """Find how much of a waiting sequence the tree holds by now.

        Goes on from where the last look-up ended, so that asking in every step costs nothing.

        Returns:
            The pending node that the sequence should wait for, or None.
        """
        if self.tree is None:
            return None
        node, depth = sequence.prefix_node, sequence.prefix_depth
        limit = sequence.num_reusable_tokens // self.block_size
        if node is None or not node.attached or depth > limit:
            node, depth = self.tree.root, 0
        sequence.prefix_node, sequence.prefix_depth, pending = self.tree.descend(
            node, depth, limit, lambda index: self._block_tokens(sequence, index)
        )
        if sequence.swapped is not None and sequence.swapped.holds(sequence.prefix_depth):
            return None  # it has a copy of its own
        return pending

    def admit(self, sequence: Sequence, reserve: int, donor: Sequence | None = None) -> bool:
        """Give a looked-up sequence blocks for all of its tokens and make it a leader.

        Where another sequence goes on with some of the same tokens after the blocks that they
        share, the block that holds them is copied (see `take_copies`): they are not computed
        again.

        Args:
            reserve: blocks that must stay available afterwards.
            donor: without a prefix tree, a sequence whose blocks hold the same prompt.

        Returns:
            False if there are too few blocks; then nothing has changed.
        """
        depth = sequence.prefix_depth if donor is None else self._given(sequence) // self.block_size
        wanted = self.blocks_for(sequence.num_tokens) - depth
        spare = self.pool.num_available - wanted - reserve
        if spare < 0:
            return False
        if self.tree is not None and depth:
            assert sequence.prefix_node is not None
            if self.tree.num_cached_above(sequence.prefix_node) > spare:
                return False
            sequence.block_table.share(self.tree.blocks_to(sequence.prefix_node))
        elif donor is not None:
            sequence.block_table.share(donor.block_table.ids[:depth])
        source, shared_tokens = self._partly_shared(sequence, donor)  # growing may evict it
        sequence.block_table.grow(wanted)
        if shared_tokens:
            self._copy(BlockCopy(source, sequence.block_table[depth]))
        sequence.num_computed_tokens = depth * self.block_size + shared_tokens
        sequence.shared_blocks = depth
        self._lead(sequence)
        return True

    def take_copies(self) -> tuple[BlockCopy, ...]:
        """The copies that admissions and forks since the last call wait for.

        The next step has to do them before it writes anything, and to read all sources before it
        writes a target: a source may have been evicted meanwhile and be a target itself.
        """
        copies = tuple(self._copies.values())
        self._copies.clear()
        return copies

    def grow(self, sequence: Sequence) -> bool:
        """Make room for the sequence's next token; false if no block is available.

        After a fork, that is a copy of the block that it shares, unless it is the last holder.
        """
        table = sequence.block_table
        try:
            if sequence.tail_shared:
                copy = table.prepare_write(sequence.num_computed_tokens // self.block_size)
                if copy is not None:
                    self._copy(copy)
                sequence.tail_shared = False
            else:
                table.grow()
        except OutOfBlocks:
            return False
        return True

    def num_shared(self, sequence: Sequence) -> int:
        """Blocks of a sequence that others hold too; they are the first of its table."""
        references = self.pool.references
        return bisect_left(sequence.block_table.ids, True, key=lambda b: references(b) == 1)

    def awaits_copy(self, sequence: Sequence) -> bool:
        """Whether one of its blocks gets its content only in the next step."""
        return any(block in self._copies for block in sequence.block_table.ids)

    def await_fork(self, parent: Sequence, child: Sequence) -> None:
        """A sequence without blocks forks from another once the next step has retired.

        That step computes the last of the tokens that both have.
        """
        child.forked_from = parent
        child.num_computed_tokens = child.num_tokens
        child.shared_blocks, partly_filled = divmod(child.num_tokens, self.block_size)
        child.tail_shared = partly_filled > 0

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let a sequence without blocks share those of another, which hold its computed tokens.

        Nothing is copied before one of them writes to the last block, if that has room (`grow`).
        """
        child.forked_from = None
        child.block_table.share(parent.block_table.ids)
        if child.num_computed_tokens % self.block_size:
            parent.tail_shared = child.tail_shared = True
        # It holds the same path through the tree, and goes on from there.
        child.prefix_node, child.prefix_depth = parent.prefix_node, parent.prefix_depth
        child.publish_at = parent.publish_at

    def hand_over(self, parent: Sequence, child: Sequence) -> None:
        """Let a sequence without blocks take those of another, which goes on without any."""
        child.block_table, parent.block_table = parent.block_table, child.block_table
        child.tail_shared, parent.tail_shared = parent.tail_shared, False
        child.prefix_node, child.prefix_depth = parent.prefix_node, parent.prefix_depth

    def lacks_room(self, sequence: Sequence) -> bool:
        """Whether `grow` is needed before the sequence writes all of its tokens."""
        held = len(sequence.block_table.ids) * self.block_size
        return held < sequence.num_tokens or sequence.tail_shared

    def num_lacking(self, sequence: Sequence) -> int:
        """Blocks, at most, that `grow` takes until the sequence does not lack room any more."""
        held = len(sequence.block_table.ids)
        return self.blocks_for(sequence.num_tokens) - held + sequence.tail_shared

    def publish(self, sequence: Sequence) -> None:
        """Enter the blocks that a retired step has filled into the tree."""
        assert self.tree is not None
        assert sequence.prefix_node is not None
        while sequence.num_computed_tokens >= sequence.publish_at:
            depth = sequence.prefix_depth
            block = sequence.block_table[depth]
            if sequence.leading:
                announced = sequence.leading.pop()
                node = announced if self.tree.commit(announced, block) else None
            else:
                node = self.tree.insert(
                    sequence.prefix_node, self._block_tokens(sequence, depth), block
                )
            if node is None:
                # Its further blocks have no place below a node that it does not hold.
                sequence.publish_at = NEVER
                return
            sequence.prefix_node, sequence.prefix_depth = node, depth + 1
            sequence.publish_at += self.block_size

    def prove(self, sequence: Sequence) -> None:
        """The sequence's logits were finite, so the blocks that it reads are sound."""
        if self.tree is not None and sequence.prefix_node is not None:
            self.tree.prove(sequence.prefix_node)

    def distrust(self, sequence: Sequence) -> None:
        """The sequence's logits were not finite: forget the blocks that may be the cause."""
        if self.tree is not None and sequence.prefix_node is not None:
            self.tree.distrust(sequence.prefix_node)

    def release(self, sequence: Sequence) -> None:
        """Take all blocks back; what it was going to compute leaves the tree."""
        for beam in sequence.fold():
            self.release(beam)
        if self.tree is not None and sequence.leading and sequence.leading[-1].attached:
            self.tree.remove(sequence.leading[-1])
        sequence.leading.clear()
        sequence.publish_at = NEVER
        sequence.tail_shared = False
        sequence.forked_from = None
        for block in sequence.block_table.ids if self._copies else ():
            self._copies.pop(block, None)
        sequence.block_table.release()
        sequence.num_computed_tokens = 0
        sequence.gap = None

    def _given(self, sequence: Sequence) -> int:
        """Tokens that a sequence takes from one with the same prompt."""
        return min(len(sequence.prompt_token_ids), sequence.num_reusable_tokens)

    def _copy(self, copy: BlockCopy) -> None:
        # A source that waits for its own content gets it in the same step, too late to be read.
        before = self._copies.get(copy.source)
        source = copy.source if before is None else before.source
        self._copies[copy.target] = BlockCopy(source, copy.target)

    def _partly_shared(self, sequence: Sequence, donor: Sequence | None) -> tuple[int, int]:
        """The block that begins with the sequence's next tokens, and how many of them it holds."""
        if donor is not None:
            depth, tokens = divmod(self._given(sequence), self.block_size)
            return donor.block_table[depth] if tokens else 0, tokens
        swapped = sequence.swapped
        if self.tree is None or (swapped and swapped.holds(sequence.prefix_depth)):
            return 0, 0
        assert sequence.prefix_node is not None
        start = sequence.prefix_depth * self.block_size
        end = min(start + self.block_size, sequence.num_reusable_tokens)
        return self.tree.closest_child(sequence.prefix_node, sequence.tokens(start, end))

    def _lead(self, sequence: Sequence) -> None:
        if self.tree is None:
            return
        assert sequence.prefix_node is not None
        depth, full = sequence.prefix_depth, sequence.num_tokens // self.block_size
        chain = self.tree.reserve(
            sequence.prefix_node,
            (self._block_tokens(sequence, index) for index in range(depth, full)),
        )
        sequence.leading = chain[::-1]
        sequence.publish_at = (depth + 1) * self.block_size

    def _block_tokens(self, sequence: Sequence, index: int) -> tuple[int, ...]:
        return sequence.tokens(index * self.block_size, (index + 1) * self.block_size)

    def check_invariants(self, holders: Iterable[Sequence]) -> None:
        """Verify pool, tree and the tables of all sequences that hold blocks.

        Raises:
            InvariantError: says what is wrong.
        """
        holders = [holder for sequence in holders for holder in sequence.beams or (sequence,)]
        self.pool.check_invariants(sequence.block_table for sequence in holders)
        if self.tree is not None:
            leading = (node for sequence in holders for node in sequence.leading)
            self.tree.check_invariants(self.block_size, leading)
        for sequence in holders:
            self._check_table(sequence, sequence.block_table)
            self._check_path(sequence)

    def _check_table(self, sequence: Sequence, table: BlockTable) -> None:
        name = f"sequence {sequence.request_id!r}"
        if sequence.forked_from is not None and not len(table):
            return
        if len(set(table.ids)) != len(table):
            raise InvariantError(f"{name} names a block twice: {table.ids}")
        if sequence.num_tokens != len(sequence.tokens(0, sequence.num_tokens + 1)):
            raise InvariantError(f"{name} has not the {sequence.num_tokens} tokens that it counts")
        stored = sequence.num_tokens - bool(sequence.output_token_ids)
        if sequence.whole is not sequence:
            stored = 0  # a beam gets its blocks when they are about to be written
        if len(table) < self.blocks_for(max(stored, sequence.num_computed_tokens)):
            raise InvariantError(f"{name} has {len(table)} blocks for {stored} tokens")
        if sequence.status is not SequenceStatus.RUNNING:
            return
        own = sequence.num_computed_tokens // self.block_size + sequence.tail_shared
        for block in table.ids[own:]:
            if self.pool.references(block) != 1 or self.pool.is_listed(block):
                raise InvariantError(f"{name} will write block {block}, which it does not own")

    def _check_path(self, sequence: Sequence) -> None:
        node = sequence.prefix_node
        if self.tree is None or node is None or not node.attached:
            return
        name = f"sequence {sequence.request_id!r}"
        for index in reversed(range(sequence.prefix_depth)):
            if node.block != sequence.block_table[index]:
                raise InvariantError(f"{name} does not hold block {index} of its prefix")
            if node.tokens != self._block_tokens(sequence, index):
                raise InvariantError(f"{name} reads block {index} of another prefix")
            assert node.parent is not None
            node = node.parent
        if node is not self.tree.root:
            raise InvariantError(f"{name} stands at a wrong depth of the tree")
