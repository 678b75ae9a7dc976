"""The block pool and block tables: who holds what, what is taken back, what is copied."""

from __future__ import annotations

import pytest

from engine.blocks import BlockCopy, BlockPool, BlockTable
from engine.errors import InvariantError, OutOfBlocks

pytestmark = pytest.mark.quick


def table(pool: BlockPool, count: int) -> BlockTable:
    made = BlockTable(pool)
    made.grow(count)
    return made


def test_every_block_is_given_once_then_none() -> None:
    pool = BlockPool(3)
    assert sorted(pool.allocate() for _ in range(3)) == [0, 1, 2]
    assert (pool.num_available, pool.num_used) == (0, 3)
    with pytest.raises(OutOfBlocks, match="all 3 KV blocks"):
        pool.allocate()


def test_a_released_block_is_free_if_nobody_listed_it() -> None:
    pool = BlockPool(1)
    held = table(pool, 1)
    held.release()
    assert (pool.num_available, pool.num_cached, len(held), held.ids) == (1, 0, 0, ())


def test_a_released_block_that_the_tree_knows_is_cached() -> None:
    pool = BlockPool(2)
    held = table(pool, 1)
    pool.list_block(held[0])
    held.release()
    assert (pool.num_available, pool.num_cached, pool.num_used) == (2, 1, 0)


def test_free_blocks_go_before_cached_ones() -> None:
    pool, evicted = BlockPool(2), []
    pool.on_evict = evicted.append
    held = table(pool, 1)
    pool.list_block(held[0])
    cached = held[0]
    held.release()
    assert pool.allocate() != cached
    assert evicted == []
    assert pool.allocate() == cached
    assert evicted == [cached]


def test_the_block_that_was_released_first_is_evicted_first() -> None:
    pool, evicted = BlockPool(3), []
    pool.on_evict = evicted.append
    held = [table(pool, 1) for _ in range(3)]
    blocks = [t[0] for t in held]
    for block in blocks:
        pool.list_block(block)
    for index in (1, 2, 0):
        held[index].release()
    # A use in between makes block 1 the youngest.
    again = BlockTable(pool)
    again.share([blocks[1]])
    again.release()
    table(pool, 3)
    assert evicted == [blocks[2], blocks[0], blocks[1]]


def test_a_table_is_released_from_its_end() -> None:
    pool, evicted = BlockPool(3), []
    pool.on_evict = evicted.append
    held = table(pool, 3)
    order = held.ids
    for block in order:
        pool.list_block(block)
    held.release()
    table(pool, 3)
    assert evicted == list(reversed(order))


def test_a_cached_block_that_is_shared_again_cannot_be_evicted() -> None:
    pool = BlockPool(2)
    held = table(pool, 1)
    block = held[0]
    pool.list_block(block)
    held.release()
    again = BlockTable(pool)
    again.share([block])
    assert pool.num_available == 1
    table(pool, 1)
    with pytest.raises(OutOfBlocks):
        pool.allocate()


def test_growing_beyond_the_pool_changes_nothing() -> None:
    pool = BlockPool(3)
    held = table(pool, 1)
    before = held.ids
    with pytest.raises(OutOfBlocks, match="3 KV blocks wanted, 2 of 3 available"):
        held.grow(3)
    assert held.ids is before
    assert pool.num_available == 2


def test_the_ids_are_one_tuple_until_the_table_changes() -> None:
    pool = BlockPool(3)
    held = table(pool, 2)
    first = held.ids
    assert held.ids is first
    held.grow()
    assert held.ids[:2] == first
    assert len(held.ids) == 3


def test_unlisting_frees_a_cached_block_and_leaves_a_held_one() -> None:
    pool = BlockPool(2)
    held, other = table(pool, 1), table(pool, 1)
    pool.list_block(held[0])
    pool.list_block(other[0])
    cached = other[0]
    other.release()
    pool.unlist_block(cached)
    pool.unlist_block(held[0])
    assert (pool.num_cached, pool.num_available) == (0, 1)
    held.release()
    assert (pool.num_cached, pool.num_available) == (0, 2)


def test_a_fork_shares_all_blocks_and_takes_none() -> None:
    pool = BlockPool(4)
    parent = table(pool, 3)
    child = parent.fork()
    assert child.ids == parent.ids
    assert pool.num_available == 1
    parent.release()
    assert pool.num_available == 1
    child.release()
    assert pool.num_available == 4


def test_the_first_fork_that_writes_copies_the_last_block_only() -> None:
    pool = BlockPool(4)
    parent = table(pool, 2)
    child = parent.fork()
    shared = parent[1]
    copy = child.prepare_write(1)
    assert copy == BlockCopy(source=shared, target=child[1])
    assert child[1] != shared
    assert child[0] == parent[0]
    # The other one is alone on its block now, and writes in place.
    assert parent.prepare_write(1) is None
    assert parent[1] == shared


def test_of_three_forks_two_copy() -> None:
    pool = BlockPool(4)
    tables = [table(pool, 1)]
    tables += [tables[0].fork(), tables[0].fork()]
    assert [t.prepare_write(0) is not None for t in tables] == [True, True, False]
    assert len({t[0] for t in tables}) == 3


def test_a_block_of_the_tree_is_never_written_in_place() -> None:
    pool = BlockPool(2)
    held = table(pool, 1)
    pool.list_block(held[0])
    assert held.prepare_write(0) is not None


def test_a_copy_without_a_free_block_changes_nothing() -> None:
    pool = BlockPool(1)
    parent = table(pool, 1)
    child = parent.fork()
    with pytest.raises(OutOfBlocks):
        child.prepare_write(0)
    assert child.ids == parent.ids
    pool.check_invariants([parent, child])


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda pool, held: pool.retain(held[0]), "block 0 has 2 references, but 1 tables"),
        (lambda pool, held: pool._free.append(held[0]), "block 0: free is True"),
        (lambda pool, held: pool._free.append(2), "twice in the free list"),
        (lambda pool, held: pool._idle.update({held[0]: None}), "block 0: cached is True"),
        (lambda pool, held: pool._free.remove(2), "block 2: free is False"),
    ],
)
def test_wrong_books_are_found(break_it, message) -> None:  # type: ignore[no-untyped-def]
    pool = BlockPool(3)
    held = table(pool, 1)
    pool.check_invariants([held])
    break_it(pool, held)
    with pytest.raises(InvariantError, match=message):
        pool.check_invariants([held])
