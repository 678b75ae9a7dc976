"""The queue of sequences that hold no blocks.

Order: priority; then sequences that were preempted, first those whose KV is kept in host memory;
then groups of equal first block, so that a cached prefix is used while it is hot; in a group, and
among groups, the longest answer first, so that no long one is left to run alone at the end
(longest processing time first: Graham 1969, https://doi.org/10.1137/0117039); then arrival.

Nobody starves. A round is made of the sequences that have come by the time its first one is
served; later ones, however long, are of the next round. A group's turn takes the members that
are there when it begins.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Iterator
from heapq import heappop, heappush

from engine.prefix_tree import PrefixNode
from engine.sequence import Sequence, SequenceStatus

# Followers of one group to park before the step looks at other groups.
PARKED_PER_TURN = 16
# Ended sequences that may stay in the queue, however few others there are.
MIN_TO_SWEEP = 1000

# Round, negated length of the answer, arrival.
_Place = tuple[int, int, int]
_Heap = list[tuple[_Place, Sequence]]


class WaitingQueue:
    """Waiting sequences; all calls are O(log n) on average, whatever is blocked.

    Args:
        block_size: tokens of the first block by which sequences are grouped; None for no groups.
        longest: answers of that many tokens or more count as equally long; 0 for plain order
            of arrival.
    """

    def __init__(self, block_size: int | None, longest: int = 0) -> None:
        self._block_size = block_size
        self._longest = longest
        self._round = 0
        self._levels: dict[int, _Level] = {}
        self._order: list[int] = []  # negated priorities, ascending
        self._parked: dict[PrefixNode, list[Sequence]] = {}
        self._length = 0
        self._discarded = 0

    def __len__(self) -> int:
        return self._length

    def push(self, sequence: Sequence) -> None:
        """Queue a new or preempted sequence at its place."""
        if not sequence.num_admissions:
            length = min(sequence.max_output_tokens, self._longest)
            sequence.waiting_place = (self._round, -length, sequence.arrival)
        self._length += 1
        self._enqueue(sequence)

    def discard(self, sequence: Sequence) -> None:
        """A sequence has ended while it waited.

        It is dropped when it comes up, or with the others once they are the most.
        """
        assert sequence.status is SequenceStatus.FINISHED
        self._length -= 1
        self._discarded += 1
        if self._discarded > max(self._length, MIN_TO_SWEEP):
            remaining = [s for level in self._levels.values() for s in level.sequences()]
            self._levels, self._order, self._discarded = {}, [], 0
            for other in remaining:
                self._enqueue(other)

    def peek(self) -> Sequence | None:
        """The sequence to serve next; None if all wait for something."""
        index = 0
        while index < len(self._order):
            key = self._order[index]
            level = self._levels[key]
            sequence = level.peek()
            if sequence is not None:
                return sequence
            if level.is_empty:
                del self._levels[key], self._order[index]
            else:
                index += 1
        return None

    def pop(self) -> Sequence:
        """Take out the sequence that `peek` has just returned."""
        sequence = self.peek()
        assert sequence is not None
        heappop(self._levels[-sequence.request.priority].source)
        self._length -= 1
        self._round = max(self._round, sequence.waiting_place[0] + 1)
        return sequence

    def hold(self, blocker: PrefixNode) -> None:
        """Pass over the sequence that `peek` has just returned until `blocker` is resolved.

        Where the blocker is the first block, the whole group needs it and is set aside for the
        step. Otherwise the sequence is parked, and the group is set aside only when many of its
        members were parked in a row: the step should reach other groups.
        """
        sequence = self.peek()
        assert sequence is not None
        level = self._levels[-sequence.request.priority]
        if level.in_turn and sequence.prefix_depth == 0:
            level.set_turn_aside()
            return
        heappop(level.source)
        self._parked.setdefault(blocker, []).append(sequence)
        level.parked += 1
        if level.in_turn and level.parked >= PARKED_PER_TURN:
            level.set_turn_aside()

    def begin_step(self) -> None:
        """Queue again what was set aside and what no longer has to wait."""
        for level in self._levels.values():
            level.restore()
        resolved = [node for node in self._parked if not node.pending]
        for node in resolved:
            for sequence in self._parked.pop(node):
                self._enqueue(sequence)

    def __iter__(self) -> Iterator[Sequence]:
        """All waiting sequences, in no order."""
        for level in self._levels.values():
            yield from level.sequences()
        for parked in self._parked.values():
            yield from (s for s in parked if s.status is SequenceStatus.WAITING)

    @property
    def blockers(self) -> Iterator[PrefixNode]:
        """The nodes that parked sequences wait for."""
        return iter(self._parked)

    def _enqueue(self, sequence: Sequence) -> None:
        key = -sequence.request.priority
        level = self._levels.get(key)
        if level is None:
            level = self._levels[key] = _Level()
            bisect.insort(self._order, key)
        if sequence.num_admissions:
            recomputes = sequence.swapped is None
            heappush(level.returning, ((int(recomputes), 0, sequence.arrival), sequence))
        else:
            level.add(self._group_of(sequence), sequence)

    def _group_of(self, sequence: Sequence) -> Hashable:
        if self._block_size is None:
            return ()
        if len(sequence.prompt_token_ids) <= self._block_size:
            return sequence.arrival  # no block that it could share: a group of its own
        return sequence.prompt_token_ids[: self._block_size]


class _Level:
    """The sequences of one priority.

    Attributes:
        returning: preempted ones, the swapped ones first, by arrival.
        source: the heap from which `peek` took its answer.
        parked: sequences parked in this turn.
    """

    def __init__(self) -> None:
        self.returning: _Heap = []
        self.source: _Heap = self.returning
        self.parked = 0
        self._groups: dict[Hashable, _Heap] = {}
        # Heap of (place of its head, group). The valid entry of a group is the one in
        # `_entered`; a group in its turn or set aside has none.
        self._order: list[tuple[_Place, Hashable]] = []
        self._entered: dict[Hashable, _Place] = {}
        self._turn: Hashable = None  # the group that is being served
        self._turn_end = 0
        self._newest = 0
        self._aside: list[Hashable] = []

    @property
    def is_empty(self) -> bool:
        return not self.returning and not self._groups

    @property
    def in_turn(self) -> bool:
        """Whether `peek` took its answer from a group."""
        return self.source is not self.returning

    def add(self, key: Hashable, sequence: Sequence) -> None:
        group = self._groups.get(key)
        self._newest = max(self._newest, sequence.arrival)
        if group is None:
            self._groups[key] = [(sequence.waiting_place, sequence)]
            self._enter(key)
            return
        heappush(group, (sequence.waiting_place, sequence))
        entered = self._entered.get(key)
        if entered is not None and sequence.waiting_place < entered:
            self._enter(key)

    def peek(self) -> Sequence | None:
        self.source = self.returning
        sequence = _head(self.returning)
        if sequence is not None:
            return sequence
        while self._turn is not None or self._begin_turn():
            group = self._groups[self._turn]
            sequence = _head(group)
            if sequence is not None and sequence.arrival <= self._turn_end:
                self.source = group
                return sequence
            self._end_turn()
        return None

    def set_turn_aside(self) -> None:
        """Leave the current group alone until `restore`."""
        self._aside.append(self._turn)
        self._turn = None
        self.source = self.returning

    def restore(self) -> None:
        for key in self._aside:
            self._enter(key)
        self._aside.clear()

    def sequences(self) -> Iterator[Sequence]:
        for heap in (self.returning, *self._groups.values()):
            yield from (s for _, s in heap if s.status is SequenceStatus.WAITING)

    def _begin_turn(self) -> bool:
        while self._order:
            place, key = heappop(self._order)
            if self._entered.get(key) != place:
                continue
            del self._entered[key]
            group = self._groups[key]
            if _head(group) is None or group[0][0] != place:
                self._enter(key)
                continue
            self._turn, self._turn_end, self.parked = key, self._newest, 0
            return True
        return False

    def _end_turn(self) -> None:
        key, self._turn = self._turn, None
        self._enter(key)

    def _enter(self, key: Hashable) -> None:
        """Let a group wait for its turn; an empty one is forgotten."""
        group = self._groups[key]
        if not group:
            del self._groups[key]
            return
        place = group[0][0]
        self._entered[key] = place
        heappush(self._order, (place, key))


def _head(heap: _Heap) -> Sequence | None:
    """The first sequence that still waits; finished ones before it are dropped."""
    while heap:
        sequence = heap[0][1]
        if sequence.status is SequenceStatus.WAITING:
            return sequence
        heappop(heap)
    return None
