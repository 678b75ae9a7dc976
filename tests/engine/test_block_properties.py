"""Blocks, tables and prefix tree under arbitrary histories, with forks, on simulated memory.

The model is simple: every table has a list of tokens, and the memory behind it must hold exactly
these tokens, each after its own whole prefix, whatever the other tables do.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.blocks import BlockPool, BlockTable
from engine.errors import OutOfBlocks
from engine.prefix_tree import PrefixNode, PrefixTree

NUM_BLOCKS = 8


class Holder:
    """A table, the tokens computed so far, and the prompt that they begin with."""

    def __init__(
        self, table: BlockTable, prompt: list[int], computed: int, node: PrefixNode, depth: int
    ) -> None:
        self.table, self.prompt, self.tokens = table, prompt, prompt[:computed]
        self.node, self.depth = node, depth
        self.leading: list[PrefixNode] = []
        self.private = False


class BlockMachine(RuleBasedStateMachine):
    @initialize(size=st.sampled_from([1, 2, 3]))
    def start(self, size: int) -> None:
        self.size = size
        self.pool = BlockPool(NUM_BLOCKS)
        self.tree = PrefixTree(self.pool)
        self.holders: list[Holder] = []
        # memory[block][offset] is the whole prefix that ends at the token of this slot.
        self.memory: list[list[tuple[int, ...] | None]] = [[None] * size for _ in range(NUM_BLOCKS)]

    # ---- what sequences do --------------------------------------------------------------

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=9))
    def begin(self, tokens: list[int]) -> None:
        """A sequence shares what is there and becomes the leader of the rest."""
        limit = (len(tokens) - 1) // self.size
        node, depth, pending = self.tree.descend(
            self.tree.root, 0, limit, lambda i: self.block_tokens(tokens, i)
        )
        if pending is not None:
            assert any(pending in other.leading for other in self.holders)
            return
        wanted = -(-len(tokens) // self.size) - depth
        taken = self.tree.num_cached_above(node)
        fits = wanted <= self.pool.num_available - taken
        table = BlockTable(self.pool)
        table.share(self.tree.blocks_to(node))
        try:
            table.grow(wanted)
        except OutOfBlocks:
            assert not fits
            table.release()
            return
        assert fits
        holder = Holder(table, tokens, depth * self.size, node, depth)
        rest = [self.block_tokens(tokens, i) for i in range(depth, len(tokens) // self.size)]
        holder.leading = self.tree.reserve(node, rest)[::-1]
        holder.private = bool(rest) and not holder.leading
        self.holders.append(holder)

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), count=st.integers(1, 6), token=st.integers(0, 1))
    def step(self, data: st.DataObject, count: int, token: int) -> None:
        """Compute some tokens of the prompt, or a new one."""
        holder = self.pick(data)
        prompt = holder.prompt[len(holder.tokens) :][:count]
        for token_id in prompt or [token]:
            if not self.write(holder, token_id):
                assert self.pool.num_available == 0
                return

    def write(self, holder: Holder, token: int) -> bool:
        index, offset = divmod(len(holder.tokens), self.size)
        try:
            if index == len(holder.table):
                holder.table.grow()
            elif (copy := holder.table.prepare_write(index)) is not None:
                assert offset > 0, "a block without tokens was copied"
                self.memory[copy.target] = list(self.memory[copy.source])
        except OutOfBlocks:
            return False
        holder.tokens.append(token)
        self.memory[holder.table[index]][offset] = tuple(holder.tokens)
        if offset == self.size - 1:
            self.publish(holder, index)
        return True

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        """A second sequence over the same blocks, once the prompt is computed."""
        holder = self.pick(data)
        if len(holder.tokens) >= len(holder.prompt) and len(self.holders) < 6:
            available = self.pool.num_available
            twin = Holder(
                holder.table.fork(), holder.tokens, len(holder.tokens), holder.node, holder.depth
            )
            twin.private = holder.private
            self.holders.append(twin)
            assert self.pool.num_available == available

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """A sequence ends, is preempted or is aborted."""
        holder = self.pick(data)
        self.holders.remove(holder)
        if holder.leading and holder.leading[-1].attached:
            self.tree.remove(holder.leading[-1])
        holder.table.release()

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), sound=st.booleans())
    def judge(self, data: st.DataObject, sound: bool) -> None:
        """A sequence has finite logits, or not."""
        holder = self.pick(data)
        (self.tree.prove if sound else self.tree.distrust)(holder.node)

    # ---- helpers -------------------------------------------------------------------------

    def pick(self, data: st.DataObject) -> Holder:
        return data.draw(st.sampled_from(self.holders), label="holder")

    def block_tokens(self, tokens: list[int], index: int) -> tuple[int, ...]:
        return tuple(tokens[index * self.size : (index + 1) * self.size])

    def publish(self, holder: Holder, index: int) -> None:
        if holder.private:
            return
        block = holder.table[index]
        if holder.leading:
            announced = holder.leading.pop()
            node = announced if self.tree.commit(announced, block) else None
        else:
            node = self.tree.insert(holder.node, self.block_tokens(holder.tokens, index), block)
        if node is None:
            holder.private, holder.leading = True, []
        else:
            holder.node, holder.depth = node, holder.depth + 1

    # ---- what must always hold -----------------------------------------------------------

    @invariant()
    def memory_holds_what_the_tables_say(self) -> None:
        for holder in getattr(self, "holders", []):
            for position in range(len(holder.tokens)):
                index, offset = divmod(position, self.size)
                held = self.memory[holder.table[index]][offset]
                assert held == tuple(holder.tokens[: position + 1])

    @invariant()
    def the_tree_knows_what_the_memory_holds(self) -> None:
        stack = [(self.tree.root, ())] if hasattr(self, "tree") else []
        while stack:
            node, prefix = stack.pop()
            if node.block is not None:
                assert self.memory[node.block][-1] == prefix
            stack += [(child, prefix + child.tokens) for child in node.children.values()]

    @invariant()
    def books_are_right(self) -> None:
        if hasattr(self, "tree"):
            self.pool.check_invariants([holder.table for holder in self.holders])
            leading = [node for holder in self.holders for node in holder.leading]
            self.tree.check_invariants(self.size, leading)

    def teardown(self) -> None:
        for holder in getattr(self, "holders", []):
            if holder.leading and holder.leading[-1].attached:
                self.tree.remove(holder.leading[-1])
            holder.table.release()
        if hasattr(self, "pool"):
            assert self.pool.num_available == NUM_BLOCKS
            assert self.pool.num_used == 0
            # Everything that is cached can be taken back, leaves first.
            BlockTable(self.pool).grow(NUM_BLOCKS)
            assert len(self.tree) == 0
            assert not self.tree.root.children


BlockMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestBlocks = BlockMachine.TestCase
