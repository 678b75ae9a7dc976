"""The prefix tree: which full blocks of tokens the KV pool already holds.

A radix tree whose edges are the token ids of one full block (radix attention: Zheng et al. 2023,
https://arxiv.org/abs/2312.07104). A child is found by comparing the tokens themselves, so no
collision of hashes can hand out the wrong block.

A node is *usable* when the step that wrote its block has retired. Before, it is *pending*: one
running sequence (the leader) is about to compute it, and others wait rather than compute it again.
It is *proven* once some sequence that reads it has had finite logits: a block with a NaN makes
the logits of all its readers NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

from engine.blocks import BlockPool
from engine.errors import InvariantError

BlockTokens = tuple[int, ...]

# Children of a node that are looked at for one that begins as a sequence goes on, from the oldest
# and from the newest. After a prefix that all rows of a job share any of them will do, however
# many there are; rows that share more than others do arrive one after the other.
_CANDIDATES = 16


class PrefixNode:
    """One full block after one prefix.

    Attributes:
        tokens: the token ids of the block.
        block: its physical block; None while pending.
        attached: whether the node is still in the tree. If it is, so are all above it.
        proven: see the module's text.
    """

    __slots__ = ("attached", "block", "children", "parent", "proven", "tokens")

    def __init__(
        self, parent: PrefixNode | None, tokens: BlockTokens, block: int | None, *, proven: bool
    ) -> None:
        self.parent = parent
        self.tokens = tokens
        self.block = block
        self.proven = proven
        self.attached = True
        self.children: dict[BlockTokens, PrefixNode] = {}

    @property
    def pending(self) -> bool:
        return self.block is None and self.attached and self.parent is not None


class PrefixTree:
    """Full blocks of token ids, each after its whole prefix.

    Holds no references: a usable node whose block no table names is cached, and the pool takes
    it back when it needs room. Whoever holds a node's block holds those of all nodes above it.
    """

    def __init__(self, pool: BlockPool) -> None:
        self.root = PrefixNode(None, (), None, proven=True)
        self._pool = pool
        self._by_block: dict[int, PrefixNode] = {}
        pool.on_evict = self._evicted

    def __len__(self) -> int:
        """Number of usable nodes."""
        return len(self._by_block)

    def descend(
        self, node: PrefixNode, depth: int, limit: int, tokens_of: Callable[[int], BlockTokens]
    ) -> tuple[PrefixNode, int, PrefixNode | None]:
        """Follow a sequence's blocks from `node` at `depth` through usable nodes.

        Args:
            limit: the depth at which to stop.
            tokens_of: the token ids of a logical block of the sequence.

        Returns:
            The deepest usable node, its depth, and the pending node after it, if that is what
            the sequence needs next.
        """
        while depth < limit:
            child = node.children.get(tokens_of(depth))
            if child is None:
                break
            if child.block is None:
                return node, depth, child
            node, depth = child, depth + 1
        return node, depth, None

    def closest_child(self, node: PrefixNode, tokens: BlockTokens) -> tuple[int, int]:
        """Find a child whose block begins with some of `tokens`.

        Only proven ones count: what is read through the tree leaves it if it turns out to be NaN,
        a copy would not.

        Returns:
            The child's block, and how many of `tokens` it begins with; 0 if there is none.
        """
        best, most = 0, 0
        children = node.children.values()
        for child in chain(islice(children, _CANDIDATES), islice(reversed(children), _CANDIDATES)):
            if child.block is None or not child.proven:
                continue
            length = _common(child.tokens, tokens)
            if length > most:
                best, most = child.block, length
        return best, most

    def blocks_to(self, node: PrefixNode) -> list[int]:
        """The blocks from the root to a usable node."""
        blocks = []
        while node.parent is not None:
            assert node.block is not None
            blocks.append(node.block)
            node = node.parent
        blocks.reverse()
        return blocks

    def num_cached_above(self, node: PrefixNode) -> int:
        """How many blocks from the root to `node` are cached, so that holding them takes them
        out of what can be allocated."""
        count = 0
        while node.block is not None and self._pool.references(node.block) == 0:
            assert node.parent is not None
            node = node.parent
            count += 1
        return count

    def reserve(self, parent: PrefixNode, blocks: Iterable[BlockTokens]) -> list[PrefixNode]:
        """Add a chain of pending nodes for the leader that will compute them.

        Returns:
            The chain; empty if somebody has or computes its first block already.
        """
        chain: list[PrefixNode] = []
        for tokens in blocks:
            if tokens in parent.children:
                break
            node = PrefixNode(parent, tokens, None, proven=False)
            parent.children[tokens] = node
            chain.append(node)
            parent = node
        return chain

    def commit(self, node: PrefixNode, block: int) -> bool:
        """A pending node's block has been written. False if the node has left the tree."""
        if not node.attached:
            return False
        node.block = block
        self._by_block[block] = node
        self._pool.list_block(block)
        return True

    def insert(self, parent: PrefixNode, tokens: BlockTokens, block: int) -> PrefixNode | None:
        """Add a written block that nobody had announced.

        Returns:
            None if the parent has left the tree, or somebody has or computes such a block: the
            duplicate stays private to its sequence.
        """
        if not parent.attached or tokens in parent.children:
            return None
        node = PrefixNode(parent, tokens, None, proven=False)
        parent.children[tokens] = node
        self.commit(node, block)
        return node

    def prove(self, node: PrefixNode) -> None:
        """A sequence that reads all blocks up to `node` has finite logits."""
        while not node.proven:
            node.proven = True
            assert node.parent is not None
            node = node.parent

    def distrust(self, node: PrefixNode) -> None:
        """A sequence that reads all blocks up to `node` has logits with NaN: unproven ones leave
        the tree, or every later sequence with that prefix would fail too."""
        top = None
        while not node.proven:
            top = node
            assert node.parent is not None
            node = node.parent
        if top is not None and top.attached:
            self.remove(top)

    def remove(self, node: PrefixNode) -> None:
        """Take a node and all below it out of the tree; running sequences keep their blocks."""
        assert node.parent is not None
        del node.parent.children[node.tokens]
        for gone in self._nodes_from(node):
            gone.attached = False
            if gone.block is not None:
                del self._by_block[gone.block]
                self._pool.unlist_block(gone.block)

    def _evicted(self, block: int) -> None:
        node = self._by_block.pop(block)
        node.attached = False
        assert node.parent is not None
        del node.parent.children[node.tokens]

    def _nodes_from(self, node: PrefixNode) -> Iterator[PrefixNode]:
        stack = [node]
        while stack:
            top = stack.pop()
            yield top
            stack.extend(top.children.values())

    def check_invariants(self, block_size: int, leading: Iterable[PrefixNode]) -> None:
        """Verify the tree's own shape and that it fits the pool.

        Args:
            leading: the pending nodes that running sequences are going to compute.

        Raises:
            InvariantError: says which node is wrong.
        """
        pending, blocks = set(), {}
        for node in self._nodes_from(self.root):
            for tokens, child in node.children.items():
                name = f"the node of tokens {tokens}"
                if child.tokens != tokens or child.parent is not node or not child.attached:
                    raise InvariantError(f"{name} is linked wrongly")
                if len(tokens) != block_size:
                    raise InvariantError(f"{name} is not a full block of {block_size}")
                if child.proven and not node.proven:
                    raise InvariantError(f"{name} is proven, but its prefix is not")
                if child.block is None:
                    pending.add(child)
                    continue
                if node.pending:
                    raise InvariantError(f"{name} is usable, but its prefix is pending")
                if node.block is not None and self._pool.references(
                    node.block
                ) < self._pool.references(child.block):
                    raise InvariantError(f"{name} has more holders than its prefix")
                blocks[child.block] = child
        if blocks != self._by_block:
            raise InvariantError("the index of nodes by block differs from the tree")
        listed = {b for b in range(self._pool.num_blocks) if self._pool.is_listed(b)}
        if listed != set(blocks):
            raise InvariantError(f"blocks {sorted(listed ^ set(blocks))} are listed wrongly")
        if pending != {node for node in leading if node.attached}:
            raise InvariantError("a pending node has no leader, or a leader's node is not pending")


def _common(left: BlockTokens, right: BlockTokens) -> int:
    """Tokens with which both begin."""
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length
