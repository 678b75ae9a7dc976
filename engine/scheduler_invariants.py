"""What must always hold of a scheduler's state."""

from __future__ import annotations

from collections.abc import Iterable

from engine.errors import InvariantError
from engine.prefix_tree import PrefixNode
from engine.sequence import Sequence, SequenceStatus
from engine.swap_space import SwapSpace


def check_batch(running: list[Sequence], max_num_seqs: int) -> None:
    """Verify the sequences that hold a place in the batch.

    Raises:
        InvariantError: says what is wrong.
    """
    if running != sorted(running, key=lambda s: s.rank):
        raise InvariantError("running sequences are not in the order of their rank")
    places = sum(sequence.places for sequence in running)
    if places > max_num_seqs:
        raise InvariantError(f"{len(running)} sequences run, in {places} places")
    for sequence in running:
        if sequence.status is not SequenceStatus.RUNNING:
            raise InvariantError(f"{sequence.request_id!r} runs, but is {sequence.status}")


def check_nobody_is_lost(
    running: list[Sequence], waiting: list[Sequence], unfinished: Iterable[str]
) -> None:
    """Verify that each request that has not ended runs or waits, and is there once.

    Raises:
        InvariantError: says who is missing, or who waits with blocks.
    """
    known = sorted(s.request_id for s in (*running, *waiting))
    expected = sorted(unfinished)
    if known != expected:
        raise InvariantError(f"{known} run or wait, but {expected} have not ended")
    for sequence in waiting:
        if len(sequence.block_table):
            raise InvariantError(f"{sequence.request_id!r} waits, but holds blocks")


def check_blockers(blockers: Iterable[PrefixNode], computing: Iterable[Sequence]) -> None:
    """Verify that each block that somebody waits for is computed by somebody.

    Raises:
        InvariantError: one is not, so who waits for it waits for ever.
    """
    leading = {node for sequence in computing for node in sequence.leading}
    for node in blockers:
        if node.pending and node not in leading:
            raise InvariantError("a sequence waits for a block that nobody computes")


def check_swapped(running: list[Sequence], waiting: Iterable[Sequence], space: SwapSpace) -> None:
    """Verify that host blocks are held by waiting sequences alone, each by one.

    Raises:
        InvariantError: says which is not.
    """
    for sequence in running:
        if sequence.swapped is not None:
            raise InvariantError(f"{sequence.request_id!r} runs, but holds host blocks")
    space.check_invariants(s.swapped for s in waiting if s.swapped is not None)
