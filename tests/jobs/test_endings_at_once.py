"""A cancel, a deadline, a retry and the last commit, all at the instant of finalization.

Whoever is first, each job ends in one state that its last event tells, its versions are complete,
and SQL counts what the files hold.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.errors import StateConflict
from jobs.finalize import drive
from jobs.manifest import manifest_files, read_manifest
from jobs.records import ChunkLease, Counts
from jobs.retry import plan_retry
from jobs.states import JOB_MOVES, JobState
from jobs.storage import Storage
from tests.support.job_store import StoreUnderTest
from tests.support.played_job import Window, add_job

MANY = [pytest.param(number, marks=pytest.mark.chaos) for number in range(6, 106)]
ROUNDS = [*range(6), *MANY]
FAILING = 3  # a row that has an error in the first version
ROWS = 10
PAST = datetime(2020, 1, 1, tzinfo=UTC)
ENDS = {None: "completed", "cancelled": "cancelled", "expired": "expired"}


class Game:
    """A job, and what may be done to it at once."""

    def __init__(self, back: StoreUnderTest, storage: Storage) -> None:
        self.back = back
        self.store = back.store
        self.storage = storage
        windows = [Window([[0, 1], [3, 2]], rejected=[4]), Window([[6, 5], [7, 8], [9]])]
        self.job = add_job(self.store, storage, windows)
        self.job.failing = {FAILING}

    def commit(self, lease: ChunkLease) -> None:
        self.job.finish(lease)

    def work(self) -> None:
        self.job.finish_all()

    def cancel(self) -> None:
        for _ in range(3):
            with contextlib.suppress(StateConflict):
                self.store.request_cancel(self.job.id)
            time.sleep(0.01)

    def expire(self) -> None:
        self.back.set_job(self.job.id, deadline_at=PAST)
        self.store.expire_overdue()

    def finalize(self) -> None:
        for _ in range(3):
            drive(self.store, self.storage, threading.current_thread().name, self.job.id)

    def retry(self) -> None:
        for _ in range(5):
            with contextlib.suppress(StateConflict):
                self.store.reopen(self.job.id, *plan_retry(self.store, self.storage, self.job.id))

    def bring_to_end(self) -> None:
        while not self.store.job(self.job.id).state.terminal:
            self.work()
            drive(self.store, self.storage, "last", self.job.id)


def at_once(seed: int, *acts: Callable[[], object]) -> None:
    """Do all of them together; the longest takes about as long as the latest waits."""
    barrier = threading.Barrier(len(acts))
    rng = random.Random(seed)
    latest = 0.15 * rng.random()

    def when_all_are_here(act: Callable[[], object], wait: float) -> None:
        barrier.wait()
        time.sleep(wait)
        act()

    with ThreadPoolExecutor(len(acts)) as pool:
        waits = [rng.uniform(0, latest) for _ in acts]
        for future in [*map(pool.submit, itertools.repeat(when_all_are_here), acts, waits)]:
            future.result()


def check_versions(game: Game) -> None:
    """Each version holds each row once, and what was answered once stays answered."""
    job = game.store.job(game.job.id)
    folder = game.storage.job(job.folder)
    assert job.published_version == job.version
    answered: set[object] = set()
    for version in range(1, job.version + 1):
        rows = game.job.published(version)
        assert [row["row_index"] for row in rows] == list(range(ROWS))
        manifest = read_manifest(folder, version)
        counts = sum((file.counts for file in manifest_files(manifest)), Counts())
        codes = Counter(code_of(row) for row in rows)
        assert codes.keys() <= {None, "invalid_json", "nan_logits", manifest["stopped"]}
        assert (counts.completed, counts.rows) == (codes[None], ROWS)
        assert counts.cancelled == codes["cancelled"]
        assert counts.expired == codes["expired"]
        now = {row["row_index"] for row in rows if row["error"] is None}
        assert now >= answered
        answered = now
    assert job.counts == counts
    assert manifest["stopped"] == job.stop_reason
    assert job.state == ENDS[job.stop_reason]


def code_of(row: dict[str, object]) -> object:
    error = row["error"]
    assert error is None or isinstance(error, dict)
    return None if error is None else error["code"]


STATES = {
    "submitted": JobState.QUEUED,
    "started": JobState.IN_PROGRESS,
    "cancel_requested": JobState.CANCELLING,
    "deadline_passed": JobState.CANCELLING,
    "retried": JobState.QUEUED,
}


def check_moves(game: Game) -> None:
    """By its events, the job went from state to state as it may."""
    events = game.store.events(game.job.id)
    states = [STATES.get(event.event) or JobState(event.event) for event in events]
    for before, after in itertools.pairwise(states):
        assert after in JOB_MOVES[before], states
    assert states[-1] == game.store.job(game.job.id).state


@pytest.mark.parametrize("number", ROUNDS)
def test_the_last_commit_a_cancel_and_a_deadline(
    back: StoreUnderTest, tmp_path: Path, number: int
) -> None:
    game = Game(back, Storage(str(tmp_path / "storage")))
    for _ in range(number % 4):
        game.commit(game.job.claim())
    lease = game.job.claim("slow")
    acts = [lambda: game.commit(lease), game.cancel, game.finalize, game.finalize, game.work]
    at_once(number, *acts, *([game.expire] if number % 2 else []))
    game.bring_to_end()
    check_versions(game)
    check_moves(game)


@pytest.mark.parametrize("number", ROUNDS)
def test_retries_at_the_instant_of_the_end(
    back: StoreUnderTest, tmp_path: Path, number: int
) -> None:
    game = Game(back, Storage(str(tmp_path / "storage")))
    game.work()
    if number % 3:
        game.finalize()
    if number % 2:
        game.job.failing = set()
    acts = [game.retry, game.retry, game.finalize, game.cancel, game.work]
    at_once(number, *acts, *([game.expire] if number % 2 else []))
    game.bring_to_end()
    check_versions(game)
    check_moves(game)
