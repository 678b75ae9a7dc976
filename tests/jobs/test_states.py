"""The moves between states: the table in `jobs.states`, and the statements that obey it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from jobs.errors import DatabaseError, JobsError
from jobs.records import Counts
from jobs.sqltypes import database_now
from jobs.states import CHUNK_MOVES, JOB_MOVES, TERMINAL, ChunkState, JobState
from jobs.store import Store
from jobs.store.moves import move_job
from tests.support.job_store import StoreUnderTest, new_plan

pytestmark = pytest.mark.quick


def test_every_state_has_its_moves() -> None:
    assert JOB_MOVES.keys() == set(JobState)
    assert CHUNK_MOVES.keys() == set(ChunkState)
    assert {state for state in JobState if state.terminal} == TERMINAL
    # Only a retry leads out of a terminal state.
    assert set().union(*(JOB_MOVES[state] for state in TERMINAL)) == {JobState.QUEUED}


def test_every_job_state_can_reach_an_end() -> None:
    reaches = set(TERMINAL)
    for _ in JobState:
        reaches |= {state for state, targets in JOB_MOVES.items() if targets & reaches}
    assert reaches == set(JobState)


def test_a_job_moves_exactly_where_it_may(back: StoreUnderTest) -> None:
    """All 81 pairs of states."""
    job = back.add((1,))
    for source, target in itertools.product(JobState, JobState):
        back.set_job(job.id, state=source)
        with back.database.begin() as connection:
            moved = move_job(connection, job.id, target)
        legal = target in JOB_MOVES[source]
        assert moved == legal, (source, target)
        assert back.store.job(job.id).state == (target if legal else source)


OPERATIONS: dict[str, Callable[[Store, str], object]] = {
    "claim": lambda store, _: store.claim_chunk("w", "m"),
    "requeue": lambda store, _: store.requeue_expired(),
    "expire": lambda store, _: store.expire_overdue(),
    "sweep": lambda store, _: store.jobs_to_finalize(),
    "finalize": lambda store, job_id: finalize(store, job_id),
    "fail": lambda store, job_id: store.fail_job(job_id, "broken", "it broke"),
    "cancel": lambda store, job_id: store.request_cancel(job_id),
    "retry": lambda store, job_id: store.reopen(job_id, new_plan((1,))),
}


def finalize(store: Store, job_id: str) -> None:
    lease = store.claim_finalization(job_id, "f")
    if lease is not None:
        store.finish_job(lease, Counts())


@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_operation_makes_an_illegal_move(back: StoreUnderTest, operation: str) -> None:
    """From every state, with a chunk that waits, runs with a lease that ran out, or none."""
    stopped_at_once = {JobState.QUEUED, JobState.IN_PROGRESS}
    for state, chunk_state in itertools.product(JobState, ("queued", "running", "stopped")):
        back.delete_all()
        job = back.add((1,))
        left = int(chunk_state != "stopped")
        back.set_job(job.id, state=state, chunks_left=left, deadline_at=database_now(-1.0))
        expiry = database_now(-1.0) if chunk_state == "running" else None
        back.set_chunks(job.id, state=chunk_state, lease_expires_at=expiry)
        try:
            OPERATIONS[operation](back.store, job.id)
        except JobsError:
            assert back.store.job(job.id).state == state
        after = back.store.job(job.id).state
        # One call may make two moves: what stops, and has nothing running, is finalizing.
        legal = {state} | JOB_MOVES[state]
        if state in stopped_at_once:
            legal |= JOB_MOVES[JobState.CANCELLING]
        assert after in legal, (state, chunk_state, after)


@pytest.mark.parametrize(
    "values",
    [{"state": "paused"}, {"stop_reason": "bored"}, {"chunks_left": -1}, {"completed": -1}],
    ids=str,
)
def test_the_database_refuses_what_no_job_can_be(
    back: StoreUnderTest, values: dict[str, object]
) -> None:
    job = back.add((1,))
    with pytest.raises(DatabaseError, match=r"(?i)check constraint"):
        back.set_job(job.id, **values)


@pytest.mark.parametrize(
    "values",
    [
        {"state": "paused"},
        {"state": "running"},  # without a lease
        {"state": "done"},  # without a part
        {"part": "p"},  # but not done
        {"prompt_tokens": -1},
    ],
    ids=str,
)
def test_the_database_refuses_what_no_chunk_can_be(
    back: StoreUnderTest, values: dict[str, object]
) -> None:
    job = back.add((1,))
    with pytest.raises(DatabaseError, match=r"(?i)check constraint"):
        back.set_chunks(job.id, **values)
