"""A batch in the making."""

from __future__ import annotations

from collections.abc import Iterable

from engine.batch import PENDING, ScheduledSequence
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

    def add_running(self, running: Iterable[Sequence]) -> None:
        """Plan one token for each sequence that decodes, and then chunks of begun prompts.

        The budget suffices for the former: a sequence is admitted only when one token for each
        that runs leaves some of it.

        Args:
            running: the first to be served first.
        """
        prefills: list[Sequence] = []
        for sequence in [holder for s in running for holder in s.beams or (s,)]:
            missing = sequence.num_tokens - sequence.num_computed_tokens
            if missing == 1:
                last = sequence.output_token_ids or sequence.prompt_token_ids
                self.planned.append(
                    _part(sequence, (last[-1],), sequence.num_computed_tokens, sequence.generates)
                )
                self.sequences.append(sequence)
            elif missing:  # a beam that has all its tokens waits for the others
                prefills.append(sequence)
        self.budget -= len(self.planned)
        for sequence in prefills:
            if self.budget:
                self.add_chunk(sequence)

    def add_pending(self, sequence: Sequence, position: int) -> None:
        """Plan the token that the step in flight samples for a sequence.

        Args:
            position: of that token.
        """
        self.planned.append(_part(sequence, (PENDING,), position, True))
        self.sequences.append(sequence)
        self.budget -= 1

    def add_chunk(self, sequence: Sequence, start: int | None = None) -> None:
        """Plan as many of a sequence's tokens that are not in the cache as the budget allows.

        Where later ones are in the cache already (`Sequence.gap`), only those before them.

        Args:
            start: the first of them, where the step in flight computes those before it.
        """
        total = sequence.num_tokens
        start = sequence.num_computed_tokens if start is None else start
        end = min(total, start + self.budget)
        if sequence.gap is not None:
            end = min(end, sequence.gap[0])
        samples = end == total and sequence.generates
        self.planned.append(_part(sequence, sequence.tokens(start, end), start, samples))
        self.sequences.append(sequence)
        self.budget -= end - start

    def add_fork(self, index: int, sequence: Sequence) -> None:
        """Plan the first token of a sample, right after the entry that computes its prompt."""
        self.planned.insert(index, _part(sequence, (), sequence.num_computed_tokens, True))
        self.sequences.insert(index, sequence)


def _part(
    sequence: Sequence, token_ids: tuple[int, ...], start: int, samples: bool
) -> ScheduledSequence:
    """A sequence's next tokens, as the runner needs to know them."""
    request, rules = sequence.request, sequence.logit_rules
    return ScheduledSequence(
        sequence.request_id,
        token_ids,
        start,
        sequence.block_table.ids,
        samples,
        request.params,
        request.sample_index,
        None if sequence.prompt is None else sequence.prompt_work,
        rules,
        # Most sequences have no rules, and show nothing of themselves.
        sequence if rules is not None else None,
        sequence.num_candidates,
    )
