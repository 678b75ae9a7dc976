"""A device without a model: KV memory that notices every wrong read and write.

A slot holds a digest of the whole prefix that ends at its token, as real KV depends on all
tokens before it. A sequence that reads a slot which was never written, was written for another
prefix, or was written over, is found out at once. The next token is a function of the last
digest, so it is right only if all of the memory was.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterable

from engine.batch import (
    NAN_LOGITS,
    PENDING,
    Batch,
    SampledLogprobs,
    SampledToken,
    ScheduledSequence,
)
from engine.beam_group import BeamGroup
from engine.request import FinishReason, Request
from engine.scheduler import Scheduler, SchedulerConfig
from engine.sequence import Sequence
from engine.swap_cost import SwapCost
from tests.support.fake_beams import digest, likeliest, undisturbed_beams

EOS = 0
VOCABULARY = 7
_NAN = "not a number"


def next_token(last_digest: int) -> int:
    return last_digest // 64 % VOCABULARY


def undisturbed(request: Request, config: SchedulerConfig) -> list[int]:
    """The answer that the request gets when it is alone in the world."""
    last, answer = 0, []
    for token_id in request.token_ids:
        last = digest(last, token_id)
    params = request.params
    stop = set(params.stop_token_ids) | (set() if params.ignore_eos else config.eos_token_ids)
    for _ in range(min(params.max_tokens, config.max_model_len - len(request.token_ids))):
        answer.append(next_token(last))
        if answer[-1] in stop:
            break
        last = digest(last, answer[-1])
    return answer


class FakeDevice:
    """Executes batches; keeps its own record of what each sequence's tokens are.

    Attributes:
        poison: ids of the requests whose next step writes NaN.
        tainted: ids of the requests that have written or read NaN.
        computed_tokens: tokens computed so far.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self._block_size = config.block_size
        self._slots: list[list[int | str | None]] = [
            [None] * config.block_size for _ in range(config.num_blocks)
        ]
        self._host: dict[int, list[int | str | None]] = {}
        self._requests: dict[str, Request] = {}
        self._tokens: dict[str, list[int]] = {}
        self._digests: dict[str, list[int]] = {}
        self._before: dict[int, int] = {}  # of each digest, that of the prefix without its token
        self._just_sampled: set[str] = set()  # by the last step
        self.poison: set[str] = set()
        self.tainted: set[str] = set()
        self.computed_tokens = 0

    def begin(self, request: Request) -> None:
        """Learn the prompt of a request that was added to the scheduler."""
        self._requests[request.request_id] = request
        self._tokens[request.request_id], self._digests[request.request_id] = [], []
        for token_id in request.token_ids:
            self._append(request.request_id, token_id)

    def execute(self, batch: Batch) -> list[SampledToken]:
        """Run one step: blocks to the host, copies, blocks from it, all reads, all writes."""
        for copy in batch.swap_out:
            self._host[copy.target] = list(self._slots[copy.source])
        copied = [(copy.target, list(self._slots[copy.source])) for copy in batch.copies]
        for target, slots in copied:
            self._slots[target] = slots
        for copy in batch.swap_in:
            self._slots[copy.target] = list(self._host[copy.source])
        sampled: list[SampledToken] = []
        writes: dict[tuple[int, int], int | str] = {}
        sick = False
        for index, planned in enumerate(batch.sequences):
            if planned.candidates:
                sampled += self._search(planned, writes)
                continue
            if planned.token_ids:
                sick = self._read(planned) or planned.request_id in self.poison
                self.poison.discard(planned.request_id)
            else:  # as sick as the sequence that it forks from
                self._check_fork(planned, batch.sequences[:index])
            if sick:
                self.tainted.add(planned.request_id)
            own = self._digests[planned.request_id]
            for position in range(planned.start, planned.end):
                slot = self._slot(planned, position)
                assert slot not in writes, f"two sequences write slot {slot} in one step"
                writes[slot] = _NAN if sick else own[position]
            if planned.samples:
                token = -1 if sick else next_token(own[planned.end - 1])
                # As log probability each token has its own number, so a lost one is seen.
                asks = planned.params.logprobs is not None and not sick
                logprobs = SampledLogprobs(array("f", [token]), array("i")) if asks else None
                sampled.append(
                    SampledToken(planned.request_id, token, NAN_LOGITS if sick else None, logprobs)
                )
        for (block, offset), value in writes.items():
            self._slots[block][offset] = value
        for given in sampled:
            request = self._requests.get(given.request_id)
            if request is not None and request.params.num_beams == 1:
                self._append(given.request_id, given.token_id)
        self._just_sampled = {given.request_id for given in sampled}
        self.computed_tokens += batch.num_tokens
        return sampled

    def _search(
        self, planned: ScheduledSequence, writes: dict[tuple[int, int], int | str]
    ) -> list[SampledToken]:
        """Compute a beam, or what all beams begin with: only the scheduler knows its tokens."""
        name = planned.request_id.partition("/beam ")[0]
        assert planned.params is self._requests[name].params
        prompt = self._digests[name]
        last, sick = 0, name in self.poison
        self.poison.discard(name)
        for position in range(planned.end):
            block, offset = slot = self._slot(planned, position)
            if position < planned.start:
                held = self._slots[block][offset]
                if not isinstance(held, int):
                    assert held == _NAN, f"{planned.request_id} reads what was never written"
                    sick = True
                    continue
                assert self._before[held] == last or sick, f"{planned.request_id} reads another's"
                last = held
            else:
                before, last = last, digest(last, planned.token_ids[position - planned.start])
                self._before[last] = before
                assert slot not in writes, f"two sequences write slot {slot} in one step"
                writes[slot] = _NAN if sick else last
            assert sick or position >= len(prompt) or last == prompt[position]
        if sick:
            self.tainted.add(name)
        if not planned.samples:
            return []
        if sick:
            return [SampledToken(planned.request_id, -1, NAN_LOGITS)]
        return [SampledToken(planned.request_id, 0, logprobs=likeliest(last, planned.candidates))]

    def _check_fork(
        self, planned: ScheduledSequence, before: tuple[ScheduledSequence, ...]
    ) -> None:
        """A fork samples from the logits of the sequence before it, and of the same prompt."""
        self._check_entry(planned)
        source = next(s for s in reversed(before) if s.token_ids)
        assert source.samples
        assert source.end == planned.end
        assert self._requests[source.request_id].sample_of is not None
        assert self._tokens[source.request_id] == self._tokens[planned.request_id]

    def _read(self, planned: ScheduledSequence) -> bool:
        """Check all that the sequence reads; true if there is NaN in it."""
        own = self._check_entry(planned)
        sick = False
        for position in range(planned.start):
            block, offset = self._slot(planned, position)
            held = self._slots[block][offset]
            if held == _NAN:
                sick = True
            else:
                assert held == own[position], (
                    f"{planned.request_id} reads slot {offset} of block {block} at position "
                    f"{position}, which does not hold its prefix"
                )
        return sick

    def _check_entry(self, planned: ScheduledSequence) -> list[int]:
        """Compare an entry with what the device knows itself; returns the digests."""
        tokens, own = self._tokens[planned.request_id], self._digests[planned.request_id]
        if planned.token_ids == (PENDING,):
            assert planned.request_id in self._just_sampled
        else:
            assert planned.token_ids == tuple(tokens[planned.start : planned.end])
        assert planned.token_ids or planned.samples, "a sequence without work was scheduled"
        request = self._requests[planned.request_id]
        assert planned.params is request.params
        assert planned.sample_index == request.sample_index
        assert planned.samples == (planned.end == len(tokens))
        return own

    def _slot(self, planned: ScheduledSequence, position: int) -> tuple[int, int]:
        logical, offset = divmod(position, self._block_size)
        return planned.block_table[logical], offset

    def _append(self, request_id: str, token_id: int) -> None:
        digests = self._digests[request_id]
        before = digests[-1] if digests else 0
        digests.append(digest(before, token_id))
        self._before[digests[-1]] = before
        self._tokens[request_id].append(token_id)


class Simulation:
    """A scheduler and a fake device that run together.

    Attributes:
        check_every_step: verify the scheduler's invariants after every call.
    """

    def __init__(self, config: SchedulerConfig, swap_cost: SwapCost | None = None) -> None:
        self.config = config
        self.scheduler = Scheduler(config, swap_cost)
        self.device = FakeDevice(config)
        self.requests: dict[str, Request] = {}
        self.ended: dict[str, Sequence] = {}
        self.check_every_step = True

    def add(self, *requests: Request) -> None:
        for request in requests:
            self.scheduler.add(request)
            self.requests[request.request_id] = request
            self.device.begin(request)

    def step(self) -> Batch:
        batch = self.scheduler.schedule()
        self._check()
        self.retire(batch)
        return batch

    def retire(self, batch: Batch) -> list[Sequence]:
        changed = self.scheduler.retire(batch, self.device.execute(batch))
        self._check()
        for sequence in changed:
            if sequence.finish_reason is not None:
                self.ended[sequence.request_id] = sequence
        return changed

    def drain(self, max_steps: int = 10_000) -> None:
        """Run until nothing is left."""
        for _ in range(max_steps):
            if not self.scheduler.has_unfinished:
                return
            assert self.step(), "there are requests, but no work was planned"
        raise AssertionError(f"{self.scheduler.num_waiting} requests wait after {max_steps} steps")

    def _check(self) -> None:
        if self.check_every_step:
            self.scheduler.check_invariants()

    def check_answers(self) -> None:
        """Every request that ended by itself has the answer of an undisturbed run."""
        for request_id, sequence in self.ended.items():
            request = self.requests[request_id]
            if isinstance(sequence, BeamGroup):
                self._check_beams(request, sequence)
                continue
            expected = undisturbed(request, self.config)
            values = [found.values[0] for found in sequence.logprobs]
            asks = request.params.logprobs is not None
            assert values == (sequence.output_token_ids if asks else [])
            if sequence.finish_reason is FinishReason.ERROR:
                assert request_id in self.device.tainted, "a sound request failed"
                length = len(sequence.output_token_ids)
                assert sequence.output_token_ids == expected[:length]
                assert sequence.error_code == "nan_logits"
            else:
                assert sequence.output_token_ids == expected

    def _check_beams(self, request: Request, group: BeamGroup) -> None:
        if group.finish_reason is FinishReason.ERROR:
            assert request.request_id in self.device.tainted, "a sound request failed"
            assert group.error_code == "nan_logits"
            return
        expected = undisturbed_beams(request, self.config)
        assert [answer for answer, _ in group.answers()] == expected

    def check_no_block_is_lost(self) -> None:
        """With nothing running, every block is free or cached."""
        stats = self.scheduler.stats
        assert not self.scheduler.has_unfinished
        assert stats.blocks_used == stats.swap_blocks_used == 0
        if not self.config.enable_prefix_caching:
            assert stats.blocks_cached == 0


def config(**changes: object) -> SchedulerConfig:
    """A small configuration for tests."""
    base = SchedulerConfig(
        num_blocks=64,
        block_size=4,
        max_num_seqs=8,
        max_num_batched_tokens=32,
        max_model_len=64,
        eos_token_ids=frozenset({EOS}),
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def ids(sequences: Iterable[Sequence | ScheduledSequence]) -> list[str]:
    return [sequence.request_id for sequence in sequences]
