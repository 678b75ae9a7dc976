"""Steps that go on when memory is short, computed in micro-batches, one after the other.

What a step needs beyond weights and KV pool grows with its tokens, so one that finds no memory
is cut in half, and again, down to a single token. To compute parts of it twice is right: each
token writes its keys and values to a slot of its own and reads those of its own and of earlier
positions only, so what a failed attempt wrote, wholly or by half, is written over with the same
before anybody reads it; and what is drawn depends on seed and position alone. Micro-batches
keep the order of the batch: no token reads what a later one of them writes.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from typing import Protocol, TypeVar

import torch

from engine.batch import Batch, SampledToken, ScheduledSequence
from engine.blocks import BlockCopy
from kernels.greedy import NO_TOKEN

log = logging.getLogger("pagemill.engine")

_Given = TypeVar("_Given")
_Got = TypeVar("_Got")
Execute = Callable[[Batch], list[SampledToken]]
Copy = Callable[[tuple[BlockCopy, ...]], None]


class BlockSwap(Protocol):
    """Copies blocks to host memory and back; to do it again gives the same."""

    def swap_out(self, copies: tuple[BlockCopy, ...]) -> None: ...

    def swap_in(self, copies: tuple[BlockCopy, ...]) -> None: ...


OUT_OF_MEMORY = "out_of_memory"

# Steps that the limit cut after which twice the limit is tried; again twice as many of them each
# time that it is tried in vain.
FIRST_PROBE, LAST_PROBE = 8, 256
# Waits, once in a step, before a sequence of which not one token can be computed is given up:
# whoever else took the memory may give it back.
WAIT_SECONDS = (0.1, 1.0)

# Memory of a CPU, of the CUDA runtime, of Triton (a kernel's first launch takes some), of cuBLAS
# and of C++.
_SIGNS = (
    "can't allocate memory", "CUDA error: out of memory", "Triton Error [CUDA]: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED", "std::bad_alloc",
)  # fmt: skip


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory of the device or of the host ran out."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


class StepSize:
    """Most tokens to compute at once, halved where memory runs out and doubled after a while.

    Without it, every step would fail first where memory stays short.

    Args:
        whole: most tokens of a step.
    """

    def __init__(self, whole: int) -> None:
        self.limit = self._whole = whole
        self._probe = FIRST_PROBE
        self._cut_steps = 0
        self._raised = False  # and nothing of the new size was computed yet

    def halve(self, tokens: int) -> None:
        """So many tokens, two or more, were too many."""
        self.limit = -(-tokens // 2)

    def step_ended(self, tokens: int, sound: bool) -> None:
        """A step of so many tokens is computed; `sound` if memory did not run out in it."""
        if not sound:
            self._probe = min(2 * self._probe, LAST_PROBE) if self._raised else FIRST_PROBE
            self._cut_steps, self._raised = 0, False
            return
        if 2 * tokens > self.limit:
            self._raised = False
        if tokens <= self.limit:
            return  # a higher limit would change nothing
        self._cut_steps += 1
        if self._cut_steps == self._probe:
            self.limit = min(2 * self.limit, self._whole)
            self._cut_steps, self._raised = 0, True


class MicroBatches:
    """Computes steps, in as many pieces as memory asks for.

    Args:
        execute: computes a batch without copies at once.
        copy: copies blocks.
        whole: most tokens of a step.
        swap: needed for batches that swap.

    Attributes:
        failures: times that memory ran out.
    """

    def __init__(
        self, execute: Execute, copy: Copy, whole: int, swap: BlockSwap | None = None
    ) -> None:
        self._execute = execute
        self._copy = copy
        self._swap = swap
        self._size = StepSize(whole)
        self.failures = 0

    def execute(self, batch: Batch) -> list[SampledToken]:
        """Compute a step.

        Returns:
            What the tokens of the whole batch are, in its order. A sequence of which not one
            token can be computed has an `out_of_memory` one, whether it samples or not.
        """
        before = self.failures
        waits = list(WAIT_SECONDS)
        self._move_blocks(batch, waits)
        sampled: list[SampledToken] = []
        left = batch.sequences
        while left:
            piece, rest = _cut(left, self._size.limit)
            part = replace(batch, sequences=piece, copies=(), swap_out=(), swap_in=())
            tokens = self._try(self._execute, part)
            if tokens is not None:
                sampled += tokens
                left = rest
            elif part.num_tokens > 1:
                self._size.halve(part.num_tokens)
            elif waits:
                _wait(waits.pop(0))
            else:
                lost = _with_forks(left)
                sampled += (SampledToken(s.request_id, NO_TOKEN, OUT_OF_MEMORY) for s in lost)
                left = left[len(lost) :]
        sound = self.failures == before
        self._size.step_ended(batch.num_tokens, sound)
        if not sound:
            _warn(batch, self._size.limit, sampled)
        return sampled

    def launch(self, batch: Batch, begin: Callable[[Batch], _Got]) -> tuple[Batch, _Got | None]:
        """Begin a step without waiting for it, if it fits as a whole.

        Args:
            begin: gives the device a batch without copies.

        Returns:
            The batch without its copies, which are done or on their way; and what `begin` gave,
            or None where memory is short: `execute` computes the batch then.
        """
        self._move_blocks(batch, list(WAIT_SECONDS))
        batch = replace(batch, copies=(), swap_out=(), swap_in=())
        if batch.num_tokens > self._size.limit:
            return batch, None
        begun = self._try(begin, batch)
        if begun is not None:
            self._size.step_ended(batch.num_tokens, sound=True)
        return batch, begun

    def collect(self, wait_for: Callable[[], list[SampledToken]]) -> list[SampledToken]:
        """What a step gave that was begun by `launch`, of something that may be asked again.

        Raises:
            MemoryError: the host has no memory for it.
        """
        waits = list(WAIT_SECONDS)
        while (sampled := self._try(lambda wait: wait(), wait_for)) is None:
            if not waits:
                raise MemoryError("there is no memory for the tokens of a step")
            _wait(waits.pop(0))
        return sampled

    def _move_blocks(self, batch: Batch, waits: list[float]) -> None:
        """All copies of a step, in the order that `Batch` asks for.

        Raises:
            MemoryError: there is none for a single one.
        """
        if batch.swap_out:
            assert self._swap is not None
            self._copy_all(self._swap.swap_out, batch.swap_out, waits)
        self._copy_all(self._copy, batch.copies, waits, _repeatable)
        if batch.swap_in:
            assert self._swap is not None
            self._copy_all(self._swap.swap_in, batch.swap_in, waits)

    def _copy_all(
        self,
        copy: Copy,
        copies: tuple[BlockCopy, ...],
        waits: list[float],
        repeatable: Callable[[tuple[BlockCopy, ...]], tuple[BlockCopy, ...]] = lambda group: group,
    ) -> None:
        """Copy blocks, as many at once as memory allows.

        Args:
            repeatable: the first of some copies that may be done again after they failed.
        """

        def copied(group: tuple[BlockCopy, ...]) -> bool:
            copy(group)
            return True

        size = len(copies)
        while copies:
            group = repeatable(copies[:size])
            if self._try(copied, group):
                copies = copies[len(group) :]
            elif len(group) > 1:
                size = -(-len(group) // 2)
            elif waits:
                _wait(waits.pop(0))
            else:
                raise MemoryError("there is no memory to copy a KV block")

    def _try(self, run: Callable[[_Given], _Got], given: _Given) -> _Got | None:
        """What something gives; None if memory ran out."""
        try:
            return run(given)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        # Only here, without the error and the frames that it names, are their tensors gone.
        self.failures += 1
        # Where the device is a GPU, its pieces may fit together where none fits alone.
        torch.cuda.empty_cache()
        return None


def _repeatable(copies: tuple[BlockCopy, ...]) -> tuple[BlockCopy, ...]:
    """The first copies, as many as may be done again after they failed half done.

    A block may be a source and then the target of a later copy, whose own source is another
    block: one after the other is as good as all at once, but not twice.
    """
    sources: set[int] = set()
    for index, copy in enumerate(copies):
        if copy.target in sources:
            return copies[:index]
        sources.add(copy.source)
    return copies


def _with_forks(left: tuple[ScheduledSequence, ...]) -> tuple[ScheduledSequence, ...]:
    """The first sequence, and those that sample from its logits."""
    forks = takewhile(lambda s: not s.token_ids, left[1:])
    return (left[0], *forks)


def _wait(seconds: float) -> None:
    gc.collect()
    time.sleep(seconds)


def _cut(
    sequences: tuple[ScheduledSequence, ...], limit: int
) -> tuple[tuple[ScheduledSequence, ...], tuple[ScheduledSequence, ...]]:
    """The first sequences with `limit` tokens, and the others; one of them may be in both."""
    budget = limit
    for index, sequence in enumerate(sequences):
        if len(sequence.token_ids) <= budget:
            budget -= len(sequence.token_ids)
            continue
        first, others = sequences[:index], sequences[index + 1 :]
        if not budget:
            return first, (sequence, *others)
        head = sequence._replace(token_ids=sequence.token_ids[:budget], samples=False)
        tail = sequence._replace(
            token_ids=sequence.token_ids[budget:], start=sequence.start + budget
        )
        return (*first, head), (tail, *others)
    return sequences, ()


def _warn(batch: Batch, size: int, sampled: list[SampledToken]) -> None:
    lost = sum(token.error_code == OUT_OF_MEMORY for token in sampled)
    log.warning(
        "step %d ran out of memory with %d tokens at once; it went on with %d at a time, and so "
        "will the next ones%s",
        batch.step, batch.num_tokens, size,
        f"; {lost} sequences could not be computed at all" if lost else "",
        extra={"event": "out_of_memory", "tokens": batch.num_tokens, "size": size, "lost": lost},
    )  # fmt: skip
