"""A batch in the making."""

from __future__ import annotations

from engine.batch import ScheduledSequence
from engine.sequence import Sequence


class StepPlan:
    """What one step computes, collected under its token budget.

    Attributes:
        budget: tokens that may still be planned.
        planned: entries of the batch.
        sequences: the sequence of each entry.
    """

    __slots__ = ("budget", "planned", "sequences")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.planned: list[ScheduledSequence] = []
        self.sequences: list[Sequence] = []

    def add_decode(self, sequence: Sequence) -> None:
        """Plan the one token of a sequence that is not in the cache yet."""
        last = sequence.output_token_ids or sequence.prompt_token_ids
        self.planned.append(
            ScheduledSequence(
                sequence.request_id,
                (last[-1],),
                sequence.num_computed_tokens,
                sequence.block_table.ids,
                sequence.generates,
                sequence.request.params,
                sequence.request.sample_index,
                sequence.prompt_work,
            )
        )
        self.sequences.append(sequence)
        self.budget -= 1

    def add_chunk(self, sequence: Sequence) -> None:
        """Plan as many of a sequence's tokens that are not in the cache as the budget allows."""
        start, total = sequence.num_computed_tokens, sequence.num_tokens
        end = min(total, start + self.budget)
        self.planned.append(
            ScheduledSequence(
                sequence.request_id,
                sequence.tokens(start, end),
                start,
                sequence.block_table.ids,
                end == total and sequence.generates,
                sequence.request.params,
                sequence.request.sample_index,
                sequence.prompt_work,
            )
        )
        self.sequences.append(sequence)
        self.budget -= end - start
