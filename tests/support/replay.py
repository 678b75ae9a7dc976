"""A day of an engine in seconds: the scheduler with a device that only keeps books.

`FakeDevice` looks at every slot that a step reads one by one, which takes too long for 100,000
requests. What is checked how often here:

- each step: the budget, the counts of places and blocks, and all that is read: each block before a
  chunk holds the digests of exactly this sequence's prefixes;
- each `every` steps, and at the end: all invariants of the scheduler, whose cost grows with its
  whole state. So a broken state is noticed `every` steps after it arose, or sooner
  (tests/engine/test_scheduler_replay_mutations.py);
- at a request's end: its answer, token by token, against that of an undisturbed run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from engine.batch import Batch, SampledToken, ScheduledSequence
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler, SchedulerConfig
from engine.sequence import Sequence
from engine.swap_cost import SwapCost
from tests.support.fake_device import EOS, digest, next_token, undisturbed


class LedgerDevice:
    """Computes digests of prefixes for tokens, and writes them to blocks.

    Attributes:
        computed_tokens: tokens computed so far.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self._size = config.block_size
        self._blocks = [[0] * config.block_size for _ in range(config.num_blocks)]
        self._host: list[list[int]] = [[] for _ in range(config.swap_blocks)]
        self._prefixes: dict[str, list[int]] = {}  # digest after each token, by request
        self.computed_tokens = 0

    def begin(self, request: Request) -> None:
        """Learn the prompt of a request that was added to the scheduler."""
        last, digests = 0, []
        for token_id in request.token_ids:
            last = digest(last, token_id)
            digests.append(last)
        self._prefixes[request.request_id] = digests

    def forget(self, request_id: str) -> None:
        del self._prefixes[request_id]

    def execute(self, batch: Batch) -> list[SampledToken]:
        """Run one step: blocks to the host, copies, blocks from it, all reads, all writes."""
        blocks, host = self._blocks, self._host
        for copy in batch.swap_out:
            host[copy.target] = blocks[copy.source][:]
        for target, content in [(copy.target, blocks[copy.source][:]) for copy in batch.copies]:
            blocks[target] = content
        for copy in batch.swap_in:
            blocks[copy.target] = host[copy.source][:]
        for planned in batch.sequences:
            self._check_reads(planned)
        tokens = map(self._compute, batch.sequences)
        return [token for token in tokens if token is not None]

    def _check_reads(self, planned: ScheduledSequence) -> None:
        own, size, blocks = self._prefixes[planned.request_id], self._size, self._blocks
        full, rest = divmod(planned.start, size)
        start = 0
        for block in planned.block_table[:full]:
            end = start + size
            assert blocks[block] == own[start:end], f"{planned.request_id} reads a wrong {block}"
            start = end
        if rest:
            block = planned.block_table[full]
            assert blocks[block][:rest] == own[start : start + rest], (
                f"{planned.request_id} reads a wrong beginning of {block}"
            )

    def _compute(self, planned: ScheduledSequence) -> SampledToken | None:
        own, size = self._prefixes[planned.request_id], self._size
        last, count = planned.end, len(planned.token_ids)
        assert planned.samples == (last == len(own))
        self.computed_tokens += count
        position = planned.start
        while position < last:
            index, offset = divmod(position, size)
            end = min(last, position - offset + size)
            block = self._blocks[planned.block_table[index]]
            block[offset : offset + end - position] = own[position:end]
            position = end
        if not planned.samples:
            return None
        token = next_token(own[-1])
        own.append(digest(own[-1], token))
        return SampledToken(planned.request_id, token)


class Replay:
    """Lets requests through a scheduler, with the checks of the module's text.

    Attributes:
        answered: requests that ended with the right answer.
        aborted: those that were taken back on the way.
    """

    def __init__(self, config: SchedulerConfig, cost: SwapCost, every: int) -> None:
        self.config = config
        self.scheduler = Scheduler(config, cost)
        self.device = LedgerDevice(config)
        self.answered = self.aborted = 0
        self._every = every
        self._inside: dict[str, Request] = {}

    def run(self, requests: Iterator[Request], inside: int, chance: random.Random) -> None:
        """Keep `inside` requests in the scheduler until all have ended."""
        more = True
        while more or self._inside:
            while more and len(self._inside) < inside:
                request = next(requests, None)
                more = request is not None
                if request is not None:
                    self.scheduler.add(request)
                    self.device.begin(request)
                    self._inside[request.request_id] = request
            if self._inside:
                self._step(chance)

    def _step(self, chance: random.Random) -> None:
        batch = self.scheduler.schedule()
        assert batch, "there are requests, but no work was planned"
        tokens = self.device.execute(batch)
        if chance.random() < 0.01:
            self._abort(chance.choice(list(self._inside)))
        for sequence in self.scheduler.retire(batch, tokens):
            if sequence.finish_reason is not None:
                self._end(sequence)
        self.check_counts(batch)
        if batch.step % self._every == 0:
            self.scheduler.check_invariants()

    def _abort(self, request_id: str) -> None:
        self.scheduler.abort(request_id)
        self.device.forget(request_id)
        del self._inside[request_id]
        self.aborted += 1

    def _end(self, sequence: Sequence) -> None:
        request = self._inside.pop(sequence.request_id)
        assert sequence.output_token_ids == undisturbed(request, self.config)
        self.device.forget(request.request_id)
        self.answered += 1

    def check_counts(self, batch: Batch) -> None:
        """What can be told at once, however much there is."""
        scheduler, pool = self.scheduler, self.scheduler._blocks.pool
        stats = scheduler.stats
        assert batch.num_tokens <= self.config.max_num_batched_tokens
        assert scheduler.num_running <= self.config.max_num_seqs
        assert scheduler.num_running + scheduler.num_waiting == len(self._inside)
        assert stats.blocks_used + pool.num_available == stats.blocks_total
        assert 0 <= stats.blocks_cached <= pool.num_available
        assert 0 <= stats.swap_blocks_used <= stats.swap_blocks_total
        assert stats.swap_ins <= stats.swap_outs <= stats.preemptions


def requests(count: int, chance: random.Random, block_size: int) -> Iterator[Request]:
    """Rows of jobs: most share a system prompt, some go on with a chat, few are long."""
    systems = [
        tuple(chance.randrange(1, 1000) for _ in range(block_size * chance.randint(1, 4)))
        for _ in range(24)
    ]
    for number in range(count):
        tail = tuple(chance.randrange(1, 9) for _ in range(chance.randint(1, 8)))
        prefix = chance.choice(systems) if chance.random() < 0.8 else ()
        params = SamplingParams(
            max_tokens=min(60, int(8 * chance.paretovariate(1.3))),
            ignore_eos=chance.random() < 0.8,
        )
        yield Request(f"r{number}", prefix + tail, params, chance.choice((0, 0, 0, 1, -1)))


def small_pool() -> SchedulerConfig:
    """A pool, and a swap space, that the sequences of a full batch have to fight for."""
    return SchedulerConfig(
        num_blocks=180,
        block_size=4,
        max_num_seqs=64,
        max_num_batched_tokens=512,
        max_model_len=256,
        eos_token_ids=frozenset({EOS}),
        reserve_growth=False,
        swap_blocks=6,
    )


def replay(count: int, *, every: int, seed: int = 0) -> Replay:
    """A pool so small that requests make room for one another, by swapping and by computing again.

    Args:
        every: steps between two looks at all invariants.
    """
    chance, config = random.Random(seed), small_pool()
    run = Replay(config, SwapCost(), every)
    run.run(requests(count, chance, config.block_size), 256, chance)
    run.scheduler.check_invariants()
    return run
