"""Copies to the host and back on a stream beside the one that computes: nothing overtakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import copy_streams, swap_pool
from engine.blocks import BlockCopy
from engine.copy_streams import DeviceStreams
from engine.kv_cache import KVCache
from engine.kv_format import KVFormat
from engine.swap_pool import SwapPool
from kernels.kv_layout import KVStorage

pytestmark = pytest.mark.quick

BLOCKS, HOSTS = 5, 6


@dataclass
class Done:
    """An event."""

    yet: bool = False


class SlowStreams:
    """Two streams whose work is done when `step` is called, in any order that events allow."""

    def __init__(self) -> None:
        self.queues: list[list[tuple[Callable[[], object], tuple[Done, ...], Done]]] = [[], []]

    def compute(self, work: Callable[[], object], *after: Done) -> Done:
        return self._queue(0, work, after)

    def copy(self, work: Callable[[], object], *after: Done) -> Done:
        return self._queue(1, work, after)

    def _queue(self, stream: int, work: Callable[[], object], after: tuple[Done, ...]) -> Done:
        done = Done()
        self.queues[stream].append((work, after, done))
        return done

    def step(self, preferred: int) -> bool:
        """Do the first work of one stream; False when there is none."""
        for queue in (self.queues[preferred], self.queues[1 - preferred]):
            if queue and all(event.yet for event in queue[0][1]):
                work, _, done = queue.pop(0)
                work()
                done.yet = True
                return True
        assert not any(self.queues), "both wait for each other"
        return False


def cache() -> KVCache:
    storage = KVStorage.allocate(1, BLOCKS, 8, 1, 4, dtype=torch.int8)
    for part in storage.parts():
        part.copy_(torch.arange(part.numel()).view(part.shape))
    return KVCache(BLOCKS, 8, KVFormat(torch.int8), storage)


def write(kv: KVCache, block: int, number: int) -> None:
    for part in kv.storage.parts():
        part[block] = number


pairs = st.dictionaries(st.integers(0, BLOCKS - 1), st.integers(0, HOSTS - 1), min_size=1).map(
    lambda found: {host: block for block, host in found.items()}  # no host block twice
)
actions = st.tuples(st.sampled_from(["out", "in", "write"]), pairs, st.integers(0, 3))


@settings(max_examples=150, deadline=None)
@given(
    done=st.lists(actions, max_size=8),
    order=st.lists(st.integers(0, 1), max_size=60),
    staged=st.integers(1, 3),
)
def test_it_is_as_if_all_was_done_in_turn(
    done: list[tuple[str, dict[int, int], int]], order: list[int], staged: int
) -> None:
    ours, expected, streams = cache(), cache(), SlowStreams()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(swap_pool, "_STAGED_BYTES", staged * ours.block_bytes)
        pools = SwapPool(ours, HOSTS, streams), SwapPool(expected, HOSTS)
    for pool in pools:
        pool._allocated().fill_(-1)
    for number, (action, copies, steps) in enumerate(done):
        block = next(iter(copies.values()))
        if action == "write":
            write(expected, block, number)
            streams.compute(lambda block=block, number=number: write(ours, block, number))
        for pool in pools:
            if action == "out":
                pool.swap_out([BlockCopy(block, host) for host, block in copies.items()])
            elif action == "in":
                pool.swap_in([BlockCopy(host, block) for host, block in copies.items()])
        for _ in range(steps):
            streams.step(order.pop() if order else 0)
    while streams.step(order.pop() if order else 1):
        pass
    for one, other in zip(ours.storage.parts(), expected.storage.parts(), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(pools[0]._allocated(), pools[1]._allocated())


def test_streams_of_a_device_wait_for_events_and_for_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []

    class Stream:
        def __init__(self, name: object) -> None:
            self.name = name if isinstance(name, str) else "copying"

        def wait_event(self, event: str) -> None:
            said.append(f"{self.name} waits for {event}")

        def record_event(self) -> str:
            said.append(f"{self.name} records")
            return f"what {self.name} did"

        def __enter__(self) -> None:
            said.append(f"on {self.name}")

        def __exit__(self, *_: object) -> None:
            said.append("off")

    class FakeCuda:
        current_stream = staticmethod(lambda device: Stream("computing"))
        stream = staticmethod(lambda stream: stream)

    cuda: Any = FakeCuda
    cuda.Stream = Stream
    monkeypatch.setattr(copy_streams.torch, "cuda", cuda)
    streams = DeviceStreams(torch.device("cuda", 0))
    first = streams.compute(lambda: said.append("gather"))
    streams.copy(lambda: said.append("to the host"), first, "another")
    assert said == [
        "on computing", "gather", "off", "computing records",
        "copying waits for what computing did", "copying waits for another",
        "on copying", "to the host", "off", "copying records",
    ]  # fmt: skip
