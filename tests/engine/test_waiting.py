"""The order in which waiting sequences are served."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.blocks import BlockPool
from engine.prefix_tree import PrefixNode, PrefixTree
from engine.request import Request
from engine.sequence import Sequence, SequenceStatus
from engine.waiting import MIN_TO_SWEEP, PARKED_PER_TURN, WaitingQueue

pytestmark = pytest.mark.quick

A, B, C = (1, 1), (2, 2), (3, 3)
POOL = BlockPool(1)


class Queue(WaitingQueue):
    """A queue with short names for tests."""

    def __init__(self, block_size: int | None = 2, longest: int = 100) -> None:
        super().__init__(block_size, longest)
        self.arrivals = 0

    def put(self, *prompt: int, priority: int = 0, answer: int = 1) -> Sequence:
        sequence = Sequence(
            Request(f"r{self.arrivals}", prompt, priority=priority),
            self.arrivals,
            pool=POOL,
            root=None,
            max_output_tokens=answer,
            stop_token_ids=frozenset(),
        )
        self.arrivals += 1
        self.push(sequence)
        return sequence

    def end(self, sequence: Sequence) -> None:
        sequence.status = SequenceStatus.FINISHED
        self.discard(sequence)

    def served(self) -> Iterator[int]:
        while self.peek() is not None:
            yield self.pop().arrival


@pytest.fixture
def queue() -> Queue:
    return Queue()


def pending_node() -> PrefixNode:
    tree = PrefixTree(BlockPool(1))
    (node,) = tree.reserve(tree.root, [A])
    return node


def resolve(node: PrefixNode) -> None:
    node.block = 0


def test_an_empty_queue_serves_nobody(queue: Queue) -> None:
    assert queue.peek() is None
    assert len(queue) == 0


def test_higher_priority_first_then_arrival(queue: Queue) -> None:
    for number, priority in enumerate((0, 2, -1, 2, 0)):
        queue.put(number, 9, 9, priority=priority)
    assert list(queue.served()) == [1, 3, 0, 4, 2]


def test_requests_of_one_first_block_are_served_together(queue: Queue) -> None:
    for prefix in (A, B, A, C, B, A):
        queue.put(*prefix, 7)
    assert list(queue.served()) == [0, 2, 5, 1, 4, 3]


def test_prompts_that_can_share_nothing_keep_their_order(queue: Queue) -> None:
    queue.put(*A)  # one token must be computed, so its only block is never taken from the cache
    queue.put(*B, 7)
    queue.put(*A)
    queue.put(*B, 7)
    assert list(queue.served()) == [0, 1, 3, 2]


def test_without_prefix_caching_arrival_alone_counts() -> None:
    queue = Queue(block_size=None)
    for prefix in (A, B, A, C, B):
        queue.put(*prefix, 7)
    assert list(queue.served()) == [0, 1, 2, 3, 4]


def test_a_stream_of_one_prefix_does_not_starve_others(queue: Queue) -> None:
    for _ in range(3):
        queue.put(*A, 7)
    other = queue.put(*B, 7)
    served = []
    while other.arrival not in served:
        served.append(queue.pop().arrival)
        queue.put(*A, 7)  # one comes for each that goes
        assert len(served) < 10
    assert served == [0, 1, 2, 3]


def test_in_a_group_the_longest_answer_comes_first_and_arrival_decides_between_equals(
    queue: Queue,
) -> None:
    for answer in (5, 20, 5, 90, 20):
        queue.put(*A, 7, answer=answer)
    assert list(queue.served()) == [3, 1, 4, 0, 2]


def test_the_group_with_the_longest_answer_comes_first(queue: Queue) -> None:
    for prefix, answer in ((A, 5), (B, 5), (C, 9), (B, 20), (A, 6)):
        queue.put(*prefix, 7, answer=answer)
    assert list(queue.served()) == [3, 1, 2, 4, 0]


def test_answers_beyond_the_limit_count_as_equally_long() -> None:
    queue = Queue(longest=10)
    for answer in (9, 10, 500, 11):
        queue.put(*A, 7, answer=answer)
    assert list(queue.served()) == [1, 2, 3, 0]


@pytest.mark.parametrize("prefix", [A, B])
def test_a_stream_of_long_answers_does_not_starve_a_short_one(
    queue: Queue, prefix: tuple[int, ...]
) -> None:
    for _ in range(3):
        queue.put(*A, 7, answer=50)
    short = queue.put(*prefix, 7, answer=1)
    served = []
    while short.arrival not in served:
        served.append(queue.pop().arrival)
        queue.put(*A, 7, answer=90)  # longer than all, one for each that goes
        assert len(served) < 10
    assert served == [0, 1, 2, 3]


def test_preempted_sequences_come_before_new_ones_of_their_priority(queue: Queue) -> None:
    early, late = queue.put(*C, 7), queue.put(*C, 7)
    assert [queue.pop(), queue.pop()] == [early, late]
    queue.put(*A, 7)
    queue.put(*B, 7, priority=1)
    for sequence in (late, early):  # the last in rank is preempted first
        sequence.num_admissions = 1
        queue.push(sequence)
    assert list(queue.served()) == [3, 0, 1, 2]


def test_an_ended_sequence_is_not_served(queue: Queue) -> None:
    first, second, third = (queue.put(*A, 7) for _ in range(3))
    queue.end(first)
    queue.end(third)
    assert len(queue) == 1
    assert list(queue) == [second]
    assert list(queue.served()) == [1]


def test_a_group_whose_members_all_ended_gives_way(queue: Queue) -> None:
    queue.end(queue.put(*A, 7))
    queue.put(*B, 7)
    queue.put(*A, 7)
    assert list(queue.served()) == [1, 2]


def test_ended_sequences_do_not_pile_up(queue: Queue) -> None:
    urgent = queue.put(*A, 7, priority=1)
    for _ in range(3 * MIN_TO_SWEEP):
        queue.end(queue.put(*B, 7))
    kept = sum(len(heap) for heap in queue._levels[0]._groups.values()) if 0 in queue._levels else 0
    assert kept <= MIN_TO_SWEEP + 1
    assert queue.pop() is urgent


def test_a_group_that_waits_for_its_first_block_is_passed_over_as_one(queue: Queue) -> None:
    node = pending_node()
    for prefix in (A, A, A, B, B):
        queue.put(*prefix, 7)
    queue.hold(node)
    assert list(queue.served()) == [3, 4]
    assert list(queue.blockers) == []
    assert len(queue) == 3
    queue.begin_step()
    assert list(queue.served()) == [0, 1, 2]


def test_a_parked_sequence_comes_back_to_its_place(queue: Queue) -> None:
    node = pending_node()
    for _ in range(3):
        queue.put(*A, 7).prefix_depth = 1
    queue.put(*B, 7)
    queue.hold(node)
    assert queue.pop().arrival == 1
    queue.begin_step()
    assert list(queue.blockers) == [node]
    resolve(node)
    queue.begin_step()
    assert list(queue.blockers) == []
    assert list(queue.served()) == [0, 2, 3]


def test_a_woken_sequence_brings_its_group_forward(queue: Queue) -> None:
    node = pending_node()
    for prefix in (A, B, C, A):
        queue.put(*prefix, 7).prefix_depth = 1
        if prefix == C:
            queue.hold(node)
            assert queue.pop().arrival == 1
    resolve(node)
    queue.begin_step()
    assert list(queue.served()) == [0, 3, 2]


def test_parking_many_followers_reaches_other_groups_in_the_same_step(queue: Queue) -> None:
    node = pending_node()
    for _ in range(10 * PARKED_PER_TURN):
        queue.put(*A, 7).prefix_depth = 1
    other = queue.put(*B, 7)
    looked_at = 0
    while (sequence := queue.peek()) is not other:
        assert sequence is not None
        queue.hold(node)
        looked_at += 1
    assert looked_at == PARKED_PER_TURN
    assert queue.pop() is other
    assert queue.peek() is None
    assert len(queue) == 10 * PARKED_PER_TURN


def test_the_last_member_of_a_group_can_be_parked(queue: Queue) -> None:
    node = pending_node()
    for _ in range(PARKED_PER_TURN):
        queue.put(*A, 7).prefix_depth = 1
    for _ in range(PARKED_PER_TURN):
        queue.hold(node)
    assert queue.peek() is None
    resolve(node)
    queue.begin_step()
    assert list(queue.served()) == list(range(PARKED_PER_TURN))


def test_a_preempted_sequence_can_be_parked(queue: Queue) -> None:
    node = pending_node()
    sequence = queue.put(*A, 7)
    queue.pop()
    sequence.num_admissions = 1
    queue.push(sequence)
    other = queue.put(*B, 7)
    queue.hold(node)
    assert queue.pop() is other
    assert queue.peek() is None
    resolve(node)
    queue.begin_step()
    assert queue.pop() is sequence


def test_a_sequence_that_ends_while_parked_is_forgotten(queue: Queue) -> None:
    node = pending_node()
    sequence = queue.put(*A, 7)
    sequence.prefix_depth = 1
    queue.hold(node)
    assert list(queue) == [sequence]
    queue.end(sequence)
    assert list(queue) == []
    resolve(node)
    queue.begin_step()
    assert queue.peek() is None
