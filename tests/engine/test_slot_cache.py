"""Slots: each key has one of its own, those in use are never taken, and a table is filled anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.slot_cache import SlotCache

pytestmark = pytest.mark.quick


@given(st.lists(st.lists(st.integers(0, 30), max_size=20), max_size=30))
def test_a_slot_holds_what_was_last_put_into_it(steps: list[list[int]]) -> None:
    cache: SlotCache[int] = SlotCache()
    table: dict[int, int] = {}
    size = 0
    for keys in steps:
        slots, new = cache.place(keys)
        if cache.size != size:
            assert cache.size >= max(8, len(set(keys))) > size
            table, size = {}, cache.size
        table.update({slot: key for key, slot in new.items()})
        assert [table[slot] for slot in slots] == keys
        assert all(0 <= slot < size for slot in slots)


def test_the_one_unused_longest_gives_way() -> None:
    cache: SlotCache[int] = SlotCache()
    cache.place(range(8))
    cache.place([0])
    _, new = cache.place([8])
    assert list(new) == [8]
    assert cache.place(range(2, 9))[1] == {}
    assert list(cache.place([1])[1]) == [1]


def test_a_key_that_comes_twice_has_one_slot() -> None:
    slots, new = SlotCache[str]().place(["a", "b", "a"])
    assert slots[0] == slots[2] != slots[1]
    assert list(new) == ["a", "b"]


def test_what_was_forgotten_is_filled_again() -> None:
    cache: SlotCache[int] = SlotCache()
    cache.place(range(20))
    assert cache.size == 32
    cache.clear()
    _, new = cache.place([3])
    assert (list(new), cache.size) == ([3], 8)


def test_keys_that_are_placed_one_by_one_keep_their_slots() -> None:
    cache: SlotCache[int] = SlotCache()
    cache.reserve(20)
    for _ in range(2):
        placed = {key: cache.place([key]) for key in range(20)}
        assert len({slots[0] for slots, _ in placed.values()}) == 20
    assert not any(new for _, new in placed.values())
