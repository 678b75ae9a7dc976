"""The prefix tree: what is found, what is not yet, and what is forgotten."""

from __future__ import annotations

import pytest

from engine.blocks import BlockPool, BlockTable
from engine.errors import InvariantError
from engine.prefix_tree import PrefixNode, PrefixTree

pytestmark = pytest.mark.quick

SIZE = 2


def blocks_of(*tokens: int) -> list[tuple[int, ...]]:
    return [tokens[i : i + SIZE] for i in range(0, len(tokens), SIZE)]


def store(tree: PrefixTree, pool: BlockPool, *tokens: int) -> tuple[BlockTable, PrefixNode]:
    """Compute and publish full blocks as a sequence does, sharing what is there."""
    wanted = blocks_of(*tokens)
    node, depth, _ = tree.descend(tree.root, 0, len(wanted), wanted.__getitem__)
    table = BlockTable(pool)
    table.share(tree.blocks_to(node))
    table.grow(len(wanted) - depth)
    for pending in tree.reserve(node, wanted[depth:]):
        assert tree.commit(pending, table[depth])
        node, depth = pending, depth + 1
    return table, node


def find(tree: PrefixTree, *tokens: int) -> list[int]:
    wanted = blocks_of(*tokens)
    node, _, _ = tree.descend(tree.root, 0, len(wanted), wanted.__getitem__)
    return tree.blocks_to(node)


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool(4)


@pytest.fixture
def tree(pool: BlockPool) -> PrefixTree:
    return PrefixTree(pool)


def test_the_longest_stored_prefix_is_found(tree: PrefixTree, pool: BlockPool) -> None:
    table, _ = store(tree, pool, 1, 2, 3, 4, 5, 6)
    assert find(tree, 1, 2, 3, 4, 9, 9) == list(table.ids[:2])
    assert find(tree, 1, 2, 3, 4, 5, 6, 7, 8) == list(table.ids)
    assert find(tree, 9, 2, 3, 4) == []


def test_equal_blocks_after_different_prefixes_are_different(
    tree: PrefixTree, pool: BlockPool
) -> None:
    first, _ = store(tree, pool, 1, 1, 7, 7)
    second, _ = store(tree, pool, 2, 2, 7, 7)
    assert find(tree, 1, 1, 7, 7) == list(first.ids)
    assert find(tree, 2, 2, 7, 7) == list(second.ids)


def test_tokens_of_equal_hash_are_told_apart(tree: PrefixTree, pool: BlockPool) -> None:
    twin = 2**61 - 1  # hash(2**61 - 1) == hash(0)
    assert hash((0, 0)) == hash((twin, twin))
    store(tree, pool, 0, 0)
    assert find(tree, twin, twin) == []


def test_the_limit_leaves_a_token_to_compute(tree: PrefixTree, pool: BlockPool) -> None:
    store(tree, pool, 1, 2, 3, 4)
    wanted = blocks_of(1, 2, 3, 4)
    _, depth, _ = tree.descend(tree.root, 0, (4 - 1) // SIZE, wanted.__getitem__)
    assert depth == 1


def test_a_pending_block_is_announced_but_not_given_out(tree: PrefixTree) -> None:
    wanted = blocks_of(1, 2, 3, 4)
    chain = tree.reserve(tree.root, wanted)
    node, depth, blocker = tree.descend(tree.root, 0, 2, wanted.__getitem__)
    assert (node, depth, blocker) == (tree.root, 0, chain[0])
    assert [n.pending for n in chain] == [True, True]
    assert len(tree) == 0


def test_a_committed_block_is_found_and_the_next_one_is_pending(
    tree: PrefixTree, pool: BlockPool
) -> None:
    wanted = blocks_of(1, 2, 3, 4)
    chain = tree.reserve(tree.root, wanted)
    tree.commit(chain[0], pool.allocate())
    node, depth, blocker = tree.descend(tree.root, 0, 2, wanted.__getitem__)
    assert (node, depth, blocker) == (chain[0], 1, chain[1])
    assert not chain[0].pending


def test_a_search_goes_on_from_where_it_ended(tree: PrefixTree, pool: BlockPool) -> None:
    store(tree, pool, 1, 2, 3, 4)
    wanted = blocks_of(1, 2, 3, 4)
    asked = []

    def tokens_of(index: int) -> tuple[int, ...]:
        asked.append(index)
        return wanted[index]

    node, depth, _ = tree.descend(tree.root, 0, 1, tokens_of)
    tree.descend(node, depth, 2, tokens_of)
    assert asked == [0, 1]


def test_nobody_reserves_what_another_computes(tree: PrefixTree) -> None:
    tree.reserve(tree.root, blocks_of(1, 2))
    assert tree.reserve(tree.root, blocks_of(1, 2, 3, 4)) == []


def test_a_duplicate_stays_private(tree: PrefixTree, pool: BlockPool) -> None:
    store(tree, pool, 1, 2)
    tree.reserve(tree.root, blocks_of(3, 4))
    assert tree.insert(tree.root, (1, 2), pool.allocate()) is None
    assert tree.insert(tree.root, (3, 4), pool.allocate()) is None
    assert len(tree) == 1


def test_what_left_the_tree_takes_no_children_and_no_block(
    tree: PrefixTree, pool: BlockPool
) -> None:
    _, node = store(tree, pool, 1, 2)
    (pending,) = tree.reserve(node, blocks_of(3, 4))
    tree.remove(node)
    assert not pending.pending
    assert not tree.commit(pending, pool.allocate())
    assert tree.insert(node, (5, 6), pool.allocate()) is None


def test_the_closest_child_begins_with_the_most_of_the_tokens() -> None:
    pool = BlockPool(64)
    tree = PrefixTree(pool)
    for last in range(40):
        tree.prove(store(tree, pool, 1, last)[1])
    (pending,) = tree.reserve(tree.root, [(5, 6)])
    unproven, _ = store(tree, pool, 7, 8)
    assert tree.closest_child(tree.root, (1, 39))[1] == 2
    assert tree.closest_child(tree.root, (1, 0)) == (find(tree, 1, 0)[0], 2)
    assert tree.closest_child(tree.root, (1, 99))[1] == 1
    for tokens in [(2, 1), (), pending.tokens, (7, 8)]:
        assert tree.closest_child(tree.root, tokens)[1] == 0
    assert len(unproven) == 1


def test_eviction_takes_leaves_least_recently_used_first(tree: PrefixTree, pool: BlockPool) -> None:
    old, _ = store(tree, pool, 1, 1, 2, 2)
    new, _ = store(tree, pool, 1, 1, 3, 3)
    old.release()
    new.release()
    assert pool.num_cached == 3
    # A use of the older branch makes the newer one the next to go.
    again, _ = store(tree, pool, 1, 1, 2, 2)
    again.release()
    spare = BlockTable(pool)
    spare.grow(2)
    assert len(find(tree, 1, 1, 3, 3)) == 1
    assert len(find(tree, 1, 1, 2, 2)) == 2
    spare.grow()
    assert len(find(tree, 1, 1, 2, 2)) == 1
    spare.grow()
    assert find(tree, 1, 1) == []
    assert len(tree) == 0


def test_a_prefix_in_use_is_not_evicted_with_its_leaf(tree: PrefixTree, pool: BlockPool) -> None:
    short, _ = store(tree, pool, 1, 1)
    long, _ = store(tree, pool, 1, 1, 2, 2)
    long.release()
    spare = BlockTable(pool)
    spare.grow(3)
    assert find(tree, 1, 1, 2, 2) == list(short.ids)
    assert pool.num_available == 0


def test_cached_blocks_on_a_path_are_counted(tree: PrefixTree, pool: BlockPool) -> None:
    _, short = store(tree, pool, 1, 1)
    long, node = store(tree, pool, 1, 1, 2, 2, 3, 3)
    assert tree.num_cached_above(node) == 0
    long.release()
    assert tree.num_cached_above(node) == 2
    assert tree.num_cached_above(short) == 0
    assert tree.num_cached_above(tree.root) == 0


def test_removal_frees_cached_blocks_and_leaves_held_ones(
    tree: PrefixTree, pool: BlockPool
) -> None:
    held, top = store(tree, pool, 1, 1)
    below, leaf = store(tree, pool, 1, 1, 2, 2)
    below.release()
    assert pool.num_cached == 1
    tree.remove(top)
    assert (pool.num_cached, pool.num_available) == (0, 3)
    assert not leaf.attached
    held.release()
    assert (pool.num_cached, pool.num_available) == (0, 4)


def test_distrust_forgets_unproven_blocks_and_all_below_them(
    tree: PrefixTree, pool: BlockPool
) -> None:
    _, sound = store(tree, pool, 1, 1)
    tree.prove(sound)
    _, doubtful = store(tree, pool, 1, 1, 2, 2)
    store(tree, pool, 1, 1, 2, 2, 3, 3)
    tree.distrust(doubtful)
    assert len(tree) == 1
    assert len(find(tree, 1, 1, 2, 2)) == 1
    tree.distrust(doubtful)  # another reader fails later
    assert len(tree) == 1


def test_proof_covers_the_whole_prefix(tree: PrefixTree, pool: BlockPool) -> None:
    _, leaf = store(tree, pool, 1, 1, 2, 2)
    tree.prove(leaf)
    tree.distrust(leaf)
    assert len(find(tree, 1, 1, 2, 2)) == 2


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda tree, node: tree.root.children.pop((1, 2)), "index of nodes by block"),
        (lambda tree, node: setattr(node, "attached", False), "linked wrongly"),
        (lambda tree, node: setattr(node.children[3, 4], "proven", True), "prefix is not"),
        (lambda tree, node: tree._pool.retain(node.children[3, 4].block), "more holders"),
        (lambda tree, node: tree._pool.unlist_block(node.block), "are listed wrongly"),
        (lambda tree, node: tree.reserve(node, [(5, 6)]), "a pending node has no leader"),
        (lambda tree, node: tree.reserve(node, [(5, 6, 7)]), "not a full block of 2"),
    ],
)
def test_a_wrong_tree_is_found(tree, pool, break_it, message) -> None:  # type: ignore[no-untyped-def]
    store(tree, pool, 1, 2, 3, 4)
    tree.check_invariants(SIZE, [])
    break_it(tree, tree.root.children[1, 2])
    with pytest.raises(InvariantError, match=message):
        tree.check_invariants(SIZE, [])
