"""What of the next step can be planned while the device computes the one before.

A sequence that samples in the step in flight goes on with a token that nobody knows yet
(`PENDING`): the device puts it in. Others need the host to see that token first, and skip a step:
those with a grammar or with beams, and samples of one prompt that fork from the step. Where most
would have to, the step is not planned before they can: two half batches cost the device more than
the host's work.

Nobody is preempted for a step ahead, as the device may be writing to a victim's blocks. Whoever
turns out to have ended with the step in flight has one token too many computed, which is
discarded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.batch import ScheduledSequence
from engine.block_manager import BlockManager
from engine.sequence import Sequence
from engine.step_plan import StepPlan


class _Ways:
    """Who of the running sequences does what in the step ahead."""

    def __init__(
        self, running: Iterable[Sequence], flying: Mapping[Sequence, ScheduledSequence]
    ) -> None:
        self.pending: list[tuple[Sequence, int]] = []  # with the place of the unknown token
        self.decodes: list[Sequence] = []  # that were not in the step in flight
        self.chunks: list[tuple[Sequence, int]] = []  # with the first token of the chunk
        self.waiting = 0  # need the host
        for holder in (h for s in running for h in s.beams or (s,)):
            entry = flying.get(holder)
            if entry is None:
                self._add_free(holder)
            elif _needs_host(holder, entry):
                self.waiting += 1
            elif not entry.samples:
                if entry.end < holder.num_tokens:
                    self.chunks.append((holder, entry.end))
            elif len(holder.output_token_ids) + 1 < holder.max_output_tokens:
                self.pending.append((holder, entry.end))

    def _add_free(self, holder: Sequence) -> None:
        """Nothing of it is unknown, as it is not in the step in flight."""
        missing = holder.num_tokens - holder.num_computed_tokens
        if missing > 1:
            self.chunks.append((holder, holder.num_computed_tokens))
        elif missing:
            self.decodes.append(holder)


def plan_ahead(
    plan: StepPlan,
    running: Iterable[Sequence],
    flying: Mapping[Sequence, ScheduledSequence],
    blocks: BlockManager,
) -> bool:
    """Plan what the running sequences compute after the step in flight.

    Args:
        running: the first to be served first.
        flying: what the step in flight computes of each of its sequences.

    Returns:
        False if the step has to be planned when that one has retired; then nothing has changed.
    """
    ways = _Ways(running, flying)
    if ways.waiting > len(ways.pending) + len(ways.chunks):
        return False
    size = blocks.block_size
    full = [s for s, position in ways.pending if len(s.block_table.ids) * size <= position]
    # A chunk has its blocks already, but for that of a beam that has just branched off again from
    # what a preempted search was computed anew up to.
    known = [*ways.decodes, *(holder for holder, _ in ways.chunks)]
    short = [holder for holder in known if blocks.lacks_room(holder)]
    if len(full) + sum(map(blocks.num_lacking, short)) > blocks.pool.num_available:
        return False
    for sequence in full:
        sequence.block_table.grow()
    for holder in short:
        while blocks.lacks_room(holder):
            blocks.grow(holder)
    plan.add_running(ways.decodes)
    for sequence, position in ways.pending:
        plan.add_pending(sequence, position)
    for sequence, start in ways.chunks:
        if plan.budget:
            plan.add_chunk(sequence, start)
    return True


def _needs_host(sequence: Sequence, entry: ScheduledSequence) -> bool:
    """Whether what it computes next depends on more of the step in flight than its token."""
    request = sequence.request
    if sequence.gap is not None:
        return True
    if request.sample_of is not None and not sequence.output_token_ids:
        return True  # others may fork from it, or it is a fork that has no blocks yet
    if not entry.samples:
        return False
    return entry.candidates > 0 or request.params.grammar is not None
