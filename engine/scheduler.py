"""The scheduler: which tokens of which sequences the next step computes.

Continuous batching (Yu et al. 2022, Orca) with chunked prefill (Agrawal et al. 2024,
https://arxiv.org/abs/2403.02310): every step takes one token of each sequence that decodes and
fills the rest of its token budget with pieces of prompts. Pure Python, without torch.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.admission import Admission
from engine.batch import NAN_LOGITS, Batch, SampledToken, ScheduledSequence, by_request
from engine.beam_group import BeamGroup, check_beams
from engine.block_manager import BlockManager
from engine.errors import EngineError, duplicate_request
from engine.logit_rules import LogitRules
from engine.planning_ahead import plan_ahead
from engine.preemption import Preemption
from engine.request import FinishReason, Request
from engine.sample_families import SampleFamilies
from engine.scheduler_config import SchedulerConfig
from engine.scheduler_invariants import (
    check_batch,
    check_blockers,
    check_nobody_is_lost,
    check_swapped,
)
from engine.scheduler_stats import Counters, SchedulerStats
from engine.sequence import Sequence, SequenceStatus
from engine.step_plan import StepPlan
from engine.steps_in_flight import MOST, StepsInFlight
from engine.swap import Swap
from engine.swap_cost import SwapCost
from engine.waiting import WaitingQueue

__all__ = ["Scheduler", "SchedulerConfig", "SchedulerStats"]


class Scheduler:
    """Requests in, batches out; what a batch gave comes back through `retire`.

    `schedule` and `retire` alternate, or with `schedule_ahead` two steps are in flight, which
    retire in their order; `add`, `abort` and `finish` are allowed at any time. Not thread-safe.

    Args:
        swap_cost: when a preempted sequence is swapped rather than computed again; by default
            whenever there is room in the swap space.
        waiting: an empty queue of another order than the scheduler's own.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        swap_cost: SwapCost | None = None,
        waiting: WaitingQueue | None = None,
    ) -> None:
        self.config = config
        caching = config.enable_prefix_caching
        self._blocks = BlockManager(
            config.num_blocks, config.block_size, enable_prefix_caching=caching
        )
        if waiting is None:
            waiting = WaitingQueue(
                config.block_size if caching else None, longest=config.tokens_per_place
            )
        self._waiting = waiting
        self._families = SampleFamilies()
        self._sequences: dict[str, Sequence] = {}  # all that have not ended
        self._running: list[Sequence] = []  # by rank
        self._flight = StepsInFlight()
        self._arrivals = 0
        self._counts = Counters()
        self._swap = Swap(self._blocks, config.swap_blocks, swap_cost or SwapCost(), self._counts)
        state = self._blocks, self._waiting, self._running, self._counts, self._swap
        self._admission = Admission(config, self._families, *state)
        self._preemption = Preemption(*state)

    @property
    def has_unfinished(self) -> bool:
        return bool(self._sequences)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting) + self._families.num_followers

    @property
    def running_sequences(self) -> tuple[Sequence, ...]:
        """The sequences that hold a place in the batch, the first to be served first."""
        return tuple(self._running)

    @property
    def stats(self) -> SchedulerStats:
        return self._counts.snapshot(self._blocks.pool, self._swap.space)

    def check(self, request: Request) -> int:
        """Most tokens that `add` would let a request generate.

        Raises:
            RequestError: it can never be served (see `SchedulerConfig.longest_answer`), or one
                of the same id has not ended (`duplicate_request`).
        """
        longest_answer = self.config.longest_answer(request)
        if request.request_id in self._sequences:
            raise duplicate_request(request.request_id)
        return longest_answer

    def add(self, request: Request, logit_rules: LogitRules | None = None) -> None:
        """Queue a request.

        Args:
            logit_rules: what is done to its logits, in an object of its own.

        Raises:
            RequestError: see `check`.
        """
        longest_answer = self.check(request)
        params = request.params
        stop = frozenset() if params.ignore_eos else self.config.eos_token_ids
        tree = self._blocks.tree
        searches = params.num_beams > 1
        if searches:
            check_beams(self.config, request, longest_answer)
        sequence = (BeamGroup if searches else Sequence)(
            request,
            self._arrivals,
            pool=self._blocks.pool,
            root=tree.root if tree is not None else None,
            max_output_tokens=longest_answer,
            stop_token_ids=stop.union(params.stop_token_ids) if params.stop_token_ids else stop,
            wave=self._counts.steps,
            logit_rules=logit_rules,
        )
        self._arrivals += 1
        self._sequences[sequence.request_id] = sequence
        if not self._families.join(sequence):
            self._waiting.push(sequence)

    def abort(self, request_id: str) -> Sequence | None:
        """Take a request back; returns its sequence, or None if the id is unknown."""
        sequence = self._sequences.get(request_id)
        if sequence is not None:
            self._end(sequence, FinishReason.ABORT)
        return sequence

    def finish(
        self, request_id: str, reason: FinishReason, error_code: str | None = None
    ) -> Sequence:
        """End a request for a reason that only the caller can see, such as a stop string.

        Returns:
            Its sequence, as it is now.

        Raises:
            EngineError: there is no such request.
        """
        sequence = self._sequences.get(request_id)
        if sequence is None:
            raise EngineError(f"cannot finish {request_id!r}: no such request has not ended yet")
        sequence.error_code = error_code
        self._end(sequence, reason)
        return sequence

    def schedule(self) -> Batch:
        """Plan the next step: decodes, then prompts that were begun, then new ones.

        Returns:
            The batch, to be given back to `retire`; an empty one if there is nothing to do.

        Raises:
            EngineError: the batch before has not been retired.
        """
        if self._flight:
            raise EngineError(
                f"step {self._counts.steps} has not been retired; call retire() before the next "
                "schedule()"
            )
        self._preemption.make_room()
        plan = StepPlan(self.config.max_num_batched_tokens)
        plan.add_running(self._running)
        return self._complete(plan)

    def schedule_ahead(self) -> Batch:
        """Plan the step after the one in flight, as far as that needs nothing of what it gives.

        Returns:
            The batch, to be given back to `retire` after the one before; an empty one if there is
            nothing to do before that one has retired.

        Raises:
            EngineError: not just one step is in flight.
        """
        if len(self._flight) != MOST - 1:
            raise EngineError(
                f"{len(self._flight)} steps are in flight; a step is planned ahead of one alone"
            )
        plan = StepPlan(self.config.max_num_batched_tokens)
        if not plan_ahead(plan, self._running, self._flight.newest(), self._blocks):
            return Batch(self._counts.steps, ())
        return self._complete(plan)

    def _complete(self, plan: StepPlan) -> Batch:
        """The plan's batch, with sequences admitted to what is left of its budget."""
        self._admission.fill(plan)
        self._counts.steps += bool(plan.planned)
        swap_out, swap_in = self._swap.take_copies()
        copies = self._blocks.take_copies()
        batch = Batch(self._counts.steps, tuple(plan.planned), copies, swap_out, swap_in)
        if batch:
            self._flight.begin(batch, plan.sequences)
        return batch

    def retire(self, batch: Batch, sampled: Iterable[SampledToken]) -> list[Sequence]:
        """Apply what a step gave.

        Args:
            batch: the first of those that were planned and have not retired.
            sampled: one token for each sequence of the batch that samples, and the pieces of
                prompts that are wanted.

        Returns:
            The sequences that got a token or ended, in the batch's order; those that had
            ended before are left out.

        Raises:
            EngineError: the batch is another one, or tokens are missing; nothing is applied.
        """
        if not batch:
            return []
        sequences = self._flight.sequences_of(batch)
        tokens, pieces = by_request(sampled)
        for planned in batch.sequences:
            if planned.samples and planned.request_id not in tokens:
                raise EngineError(f"step {batch.step} has no token for {planned.request_id!r}")
        self._flight.retire()
        changed: list[Sequence] = []
        ended = False
        for planned, sequence in zip(batch.sequences, sequences, strict=True):
            whole = sequence.group or sequence
            if whole.finish_reason is not None:  # since this step was planned
                self._counts.late_tokens += planned.samples
                continue
            if planned.prompt is not None:
                for piece in pieces.get(planned.request_id, ()):
                    assert sequence.prompt is not None
                    sequence.prompt.add(piece)
            token = tokens.get(planned.request_id)
            if token is not None and token.error_code is not None:
                self._fail(sequence, token.error_code)
            else:
                self._advance(planned, sequence)
                if planned.samples:
                    self._take(tokens[planned.request_id], sequence)
                elif not self._end_if_done(sequence):
                    continue
            if whole.finish_reason is not None:
                ended = True
                changed.append(whole)
            elif whole is sequence:
                changed.append(whole)
        if ended:
            self._drop_ended()
        for sequence in self._flight.take_landed():
            self._blocks.release(sequence)
        return changed

    def check_invariants(self) -> None:
        """Verify what must always hold; costs time in proportion to the whole state.

        Raises:
            InvariantError: says what is wrong.
        """
        holders = [*self._running, *self._flight.ended]
        self._blocks.check_invariants(holders)
        check_batch(self._running, self.config.max_num_seqs)
        check_nobody_is_lost(self._running, [*self._waiting, *self._families], self._sequences)
        check_blockers(self._waiting.blockers, holders)
        check_swapped(self._running, self._waiting, self._swap.space)

    def _advance(self, planned: ScheduledSequence, sequence: Sequence) -> None:
        """A step has computed these tokens of a sequence."""
        if sequence.forked_from is not None:
            self._blocks.fork(sequence.forked_from, sequence)
        computed = planned.start + len(planned.token_ids)
        if sequence.gap is not None and computed == sequence.gap[0]:
            computed, sequence.gap = sequence.gap[1], None
        sequence.num_computed_tokens = computed
        if computed >= sequence.publish_at:
            self._blocks.publish(sequence)

    def _take(self, token: SampledToken, sequence: Sequence) -> None:
        """A step has sampled this token of a sequence, from sound logits."""
        self._prove(sequence)
        if sequence.num_candidates:
            self._take_candidates(token, sequence)
            return
        outputs = sequence.output_token_ids
        if not outputs and sequence.request.sample_of is not None:
            self._queue(self._families.completed(sequence))
        sequence.append(token.token_id)
        if token.logprobs is not None:
            sequence.logprobs.append(token.logprobs)
        self._counts.generated_tokens += 1
        if token.token_id in sequence.stop_token_ids:
            self._mark_ended(sequence, FinishReason.STOP)
        elif len(outputs) >= sequence.max_output_tokens:
            self._mark_ended(sequence, FinishReason.LENGTH)

    def _end_if_done(self, sequence: Sequence) -> bool:
        """End a sequence that generates nothing when all of its tokens are computed."""
        if sequence.generates or sequence.num_computed_tokens < sequence.num_tokens:
            return False
        self._prove(sequence)
        self._mark_ended(sequence, FinishReason.STOP)
        return True

    def _prove(self, sequence: Sequence) -> None:
        node = sequence.prefix_node
        if node is not None and not node.proven:
            self._blocks.prove(sequence)

    def _take_candidates(self, token: SampledToken, sequence: Sequence) -> None:
        """A step has found the likeliest tokens after a beam, or after what all have in common."""
        group = sequence.whole
        assert isinstance(group, BeamGroup)
        assert token.logprobs is not None
        self._counts.generated_tokens += group.take(sequence, token.logprobs, self._blocks)
        if group.search.done:
            self._mark_ended(group, group.answers()[0][1])

    def _fail(self, sequence: Sequence, code: str) -> None:
        """End a sequence with an error; nothing that it wrote in this step is shared."""
        if code == NAN_LOGITS:
            self._blocks.distrust(sequence)
        whole = sequence.whole
        whole.error_code = code
        self._mark_ended(whole, FinishReason.ERROR)

    def _mark_ended(self, sequence: Sequence, reason: FinishReason) -> None:
        sequence.status = SequenceStatus.FINISHED
        sequence.finish_reason = reason
        del self._sequences[sequence.request_id]
        self._queue(self._families.leave(sequence))

    def _queue(self, heir: Sequence | None) -> None:
        """Queue the sample that leads its family from now on, if there is one."""
        if heir is not None:
            self._waiting.push(heir)

    def _drop_ended(self) -> None:
        """Take ended sequences out of the batch, and their blocks back as soon as that may be."""
        still_running, users = [], self._flight.users()
        for sequence in self._running:
            if sequence.status is SequenceStatus.RUNNING:
                still_running.append(sequence)
            elif sequence in users:
                self._flight.hold(sequence)
            else:
                self._blocks.release(sequence)
        self._running[:] = still_running

    def _end(self, sequence: Sequence, reason: FinishReason) -> None:
        """End one sequence from outside a step."""
        runs = sequence.status is SequenceStatus.RUNNING
        queued = not runs and not self._families.follows(sequence)
        self._mark_ended(sequence, reason)
        if queued:
            self._waiting.discard(sequence)
            self._swap.forget(sequence)
        if not runs:
            return
        self._running.remove(sequence)
        # The device may still write to the blocks of a sequence in flight.
        if self._flight:
            self._flight.hold(sequence)
        else:
            self._blocks.release(sequence)
