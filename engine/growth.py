"""How many more blocks the running sequences are going to need at once.

A sequence that ends only when it has `max_tokens` has a known length: when it will give its
blocks back is known too. Admission looks ahead to the fullest moment, so that sequences which
start together do not preempt one another as they grow (Gong et al. 2025, Past-Future Scheduler,
https://arxiv.org/abs/2507.10150, does so with sampled lengths).

A beam search counts as if its beams had nothing in common from here on. They may come to share
more, as the worse of them are given up for children of the better, but nobody can tell how much.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.sequence import Sequence

# Tokens to come; stored tokens less those that its blocks hold; blocks that go back at its end.
_Course = tuple[int, int, int]


class Growth:
    """The sequences of known length that run. Others count for nothing, however they may grow.

    Args:
        running: sequences that hold blocks for all of their tokens.
        block_size: tokens in a block.
    """

    def __init__(self, running: Iterable[Sequence], block_size: int) -> None:
        self._block_size = block_size
        self._courses: list[_Course] = []
        self._tokens = 0  # that all of them together store beyond the blocks they hold
        for sequence in running:
            self.add(sequence)

    def add(self, sequence: Sequence) -> None:
        """A sequence runs from now on."""
        if sequence.length_is_known:
            courses = self._courses_of(sequence)
            self._courses += courses
            self._tokens += sum([steps + short for steps, short, _ in courses])

    def reserve_for(self, sequence: Sequence, available: int) -> int:
        """Blocks that must be left when a waiting sequence has been given its first ones.

        Args:
            available: blocks that will be left. If all growth fits into them, nobody's end is
                looked at.
        """
        new = self._courses_of(sequence) if sequence.length_is_known else []
        tokens = self._tokens + sum(steps + short for steps, short, _ in new)
        count = len(self._courses) + len(new)
        together = tokens // self._block_size + count
        return together if together <= available else self._fullest([*self._courses, *new])

    def _fullest(self, courses: list[_Course]) -> int:
        """Blocks to come at the fullest moment, which is just before some sequence ends.

        A sequence needs half a block more than its tokens fill, on average.
        """
        courses.sort()
        alive, missing, freed, most = len(courses), sum(c[1] for c in courses), 0, 0.0
        for steps, short, own in courses:
            tokens = missing + alive * steps
            most = max(most, tokens / self._block_size + alive / 2 - freed)
            alive, missing, freed = alive - 1, missing - short, freed + own
        return int(most)

    def _courses_of(self, sequence: Sequence) -> list[_Course]:
        """One for each place that it takes in the batch."""
        if sequence.beams:
            courses = [self._course(beam) for beam in sequence.beams]
            held = {block for beam in sequence.beams for block in beam.block_table.ids}
            own = len(held) - sequence.shared_blocks
            # They end together: what they hold goes back once, with whichever counts it.
            return [
                (steps, short, own if i == 0 else 0) for i, (steps, short, _) in enumerate(courses)
            ]
        first = self._course(sequence)
        if first[0] == 1:  # it ends before any beam writes
            return [first]
        # The other beams share whole blocks, and begin with a copy of the last one.
        short = (sequence.num_tokens % self._block_size) - 1
        return [first, *[(first[0], short, 0)] * (sequence.places - 1)]

    def _course(self, sequence: Sequence) -> _Course:
        tokens = sequence.num_tokens
        blocks = len(sequence.block_table) or -(-tokens // self._block_size)
        blocks -= sequence.tail_shared  # a copy of it is still to come
        return (
            sequence.max_output_tokens - len(sequence.output_token_ids),
            tokens - 1 - blocks * self._block_size,
            blocks - sequence.shared_blocks,
        )
