"""The replay notices a scheduler whose state was broken, within the steps that it promises."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from engine.errors import EngineError
from engine.scheduler import Scheduler, SchedulerConfig
from engine.sequence import Sequence
from engine.swap_cost import SwapCost
from tests.support import replay
from tests.support.replay import Replay

EVERY, BROKEN_AT = 10, 203  # just after a look at all invariants, at step 200


def _longest(scheduler: Scheduler) -> Sequence:
    return max(scheduler.running_sequences, key=lambda s: len(s.block_table))


def one_reference_too_many(run: Replay) -> None:
    run.scheduler._blocks.pool.retain(_longest(run.scheduler).block_table[0])


def one_reference_too_few(run: Replay) -> None:
    run.scheduler._blocks.pool._references[_longest(run.scheduler).block_table[-1]] -= 1


def a_block_is_lost(run: Replay) -> None:
    run.scheduler._blocks.pool._idle.popitem()


def a_block_is_free_and_used(run: Replay) -> None:
    run.scheduler._blocks.pool._free.append(_longest(run.scheduler).block_table[-1])


def a_table_names_a_block_of_another(run: Replay) -> None:
    first, second = run.scheduler.running_sequences[:2]
    first.block_table.ids = (*first.block_table.ids[:-1], second.block_table.ids[-1])


def a_block_is_written_by_another(run: Replay) -> None:
    block = _longest(run.scheduler).block_table[0]
    run.device._blocks[block] = [0] * run.config.block_size


def the_tree_knows_another_block(run: Replay) -> None:
    tree = run.scheduler._blocks.tree
    assert tree is not None
    next(iter(tree._by_block.values())).block = 0


def a_sequence_counts_one_token_too_many(run: Replay) -> None:
    running = run.scheduler.running_sequences
    max(running, key=lambda s: s.max_output_tokens - len(s.output_token_ids)).num_tokens += 1


def a_waiting_request_is_lost(run: Replay) -> None:
    run.scheduler._waiting.pop()


def a_host_block_is_lost(run: Replay) -> None:
    run.scheduler._swap.space.allocate(1)


MUTATIONS = [
    one_reference_too_many,
    one_reference_too_few,
    a_block_is_lost,
    a_block_is_free_and_used,
    a_table_names_a_block_of_another,
    a_block_is_written_by_another,
    the_tree_knows_another_block,
    a_sequence_counts_one_token_too_many,
    a_waiting_request_is_lost,
    a_host_block_is_lost,
]


class BrokenReplay(Replay):
    """A replay that breaks its scheduler once."""

    steps = 0
    broken_at: int | None = None

    def __init__(
        self, config: SchedulerConfig, every: int, mutate: Callable[[Replay], None] | None
    ) -> None:
        super().__init__(config, SwapCost(), every)
        self._mutate = mutate

    def _step(self, chance: random.Random) -> None:
        self.steps += 1
        # Only where there is something to break: room in the swap space, and cached blocks.
        if self._mutate is not None and self.steps >= BROKEN_AT and self.broken_at is None:
            state = self.scheduler
            if state._swap.space.num_free and state._blocks.pool.num_cached:
                self.broken_at = self.steps
                self._mutate(self)
        super()._step(chance)


def run(mutate: Callable[[Replay], None] | None) -> BrokenReplay:
    chance, config = random.Random(0), replay.small_pool()
    broken = BrokenReplay(config, EVERY, mutate)
    requests = replay.requests(1_000, chance, config.block_size)
    try:
        broken.run(requests, 256, chance)
    except (AssertionError, EngineError):
        return broken
    assert mutate is None, "nobody noticed"
    return broken


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_it_is_noticed_in_time(mutate: Callable[[Replay], None]) -> None:
    broken = run(mutate)
    assert broken.broken_at is not None, "it was never broken"
    assert broken.steps - broken.broken_at <= EVERY


def test_a_sound_scheduler_passes() -> None:
    sound = run(None)
    assert sound.answered + sound.aborted == 1_000
    assert sound.steps > BROKEN_AT + EVERY
