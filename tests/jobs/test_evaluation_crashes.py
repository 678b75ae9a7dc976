"""`kill -9` at each named point of an evaluation: the next process ends it as if nothing had been.

And what workers and beats start beside them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs.cli.deployment import Deployment
from jobs.database import Database
from jobs.deletion import finish_deletions
from jobs.errors import StateConflict
from jobs.evaluation import background, runs
from jobs.evaluation.background import EvaluationDriver
from jobs.evaluation.rescoring import rescored
from jobs.records.evaluations import EvaluationRecord, EvaluationResults, EvaluationState, Verdict
from jobs.retry import plan_retry
from jobs.settings import Settings
from jobs.storage import Storage
from jobs.store import Store
from tests.support.crash_points import OF_AN_EVALUATION, OF_ITS_SCORES, OF_NEW_SCORES
from tests.support.dying_driver import LEASE_SECONDS, killed_at
from tests.support.evaluations import claimed
from tests.support.played_evaluation import PlayedEvaluations, right_but

TIMEOUT = 60.0
SAYS = right_but(1, 2)
COMMITS = ("insert_job", "move_evaluation", "finish_evaluation", "replace_evaluation_results")


def backends(points: dict[str, Any]) -> list[Any]:
    """Every point on both databases; in `make test` on PostgreSQL only those beside a commit."""
    return [
        pytest.param(
            database,
            point,
            marks=[pytest.mark.chaos]
            if database == "postgresql" and points[point].method not in COMMITS
            else [],
        )
        for database in ("sqlite", "postgresql")
        for point in points
    ]


@pytest.fixture
def played(database_url: str, tmp_path: Path) -> Iterator[PlayedEvaluations]:
    database = Database(database_url)
    store = Store(database, lease_seconds=LEASE_SECONDS)
    storage = Storage(str(tmp_path / "storage"))
    played = PlayedEvaluations(store, storage, Settings.from_env(), tmp_path / "rows.jsonl")
    played.write()
    yield played
    database.close()


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def driven_to(played: PlayedEvaluations, found: EvaluationRecord, state: EvaluationState) -> None:
    """Drive as others do, once the lease of who died has run out."""

    def there() -> bool:
        played.drive()
        return played.store.evaluation(found.id).state is state

    until(there)


def check_done(played: PlayedEvaluations, found: EvaluationRecord) -> None:
    """As in calm: one job, each row once, one outcome, and nothing that stays."""
    ended = played.store.evaluation(found.id)
    assert (ended.state, ended.error_message) == (EvaluationState.COMPLETED, None)
    assert [job.id for job in played.store.list_jobs()] == [ended.job_id]
    folder = played.storage.root / "evaluations" / found.id
    rows = pq.read_table(played.storage.root / (ended.scores_path or "")).to_pylist()
    assert [row["row_index"] for row in rows] == list(range(40))
    whole = played.store.evaluation_scores(found.id)[0]
    assert (whole.value, whole.rows) == (38 / 40, 40)
    assert played.drive() == 0
    played.store.delete_evaluation(found.id)
    finish_deletions(played.store, played.storage)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("database_url", "point"), backends(OF_AN_EVALUATION), indirect=["database_url"]
)
def test_whoever_submits_dies_there(
    played: PlayedEvaluations, database_url: str, point: str
) -> None:
    found = played.add()
    killed_at(point, database_url, played.storage)
    driven_to(played, found, EvaluationState.ANSWERING)
    played.answer(played.store.evaluation(found.id).job_id, SAYS)
    driven_to(played, found, EvaluationState.COMPLETED)
    check_done(played, found)


@pytest.mark.parametrize(
    ("database_url", "point"), backends(OF_ITS_SCORES), indirect=["database_url"]
)
def test_whoever_scores_dies_there(
    played: PlayedEvaluations, database_url: str, point: str
) -> None:
    found = played.add()
    played.drive()
    played.answer(played.store.evaluation(found.id).job_id, SAYS)
    killed_at(point, database_url, played.storage)
    driven_to(played, found, EvaluationState.COMPLETED)
    check_done(played, found)


@pytest.mark.parametrize(
    ("database_url", "point"), backends(OF_NEW_SCORES), indirect=["database_url"]
)
def test_whoever_scores_again_dies_there(
    played: PlayedEvaluations, database_url: str, point: str
) -> None:
    """What is there afterwards is all old, or all new; and it can be done again."""
    ended = played.run(lambda row: None if row in (3, 4) else SAYS(row))
    old = whole(played, ended.id)
    plan, counts = plan_retry(played.store, played.storage, ended.job_id or "")
    played.store.reopen(ended.job_id or "", plan, counts)
    played.answer(ended.job_id, SAYS)
    killed_at(point, database_url, played.storage, ended.id)
    after = whole(played, ended.id)
    assert (after == old) == (point != "the new scores are in SQL")
    deployment = Deployment(played.settings, played.store, played.storage)

    def again() -> Any:
        try:
            return rescored(deployment, ended.id, lambda _: False)
        except StateConflict:  # as long as the lease of who died runs
            return None

    until(again)
    new = whole(played, ended.id)
    assert new[1:] == (after[1:] if after != old else new[1:])
    assert new[1:3] == ([1.0 * (row not in (1, 2)) for row in range(40)], 38 / 40)
    check_done(played, ended)


def whole(played: PlayedEvaluations, id: str) -> tuple[Any, ...]:
    """What SQL and the file say that came out of an evaluation."""
    found = played.store.evaluation(id)
    rows = pq.read_table(played.storage.root / (found.scores_path or ""))["score.exact"]
    scores = played.store.evaluation_scores(id)
    assert len(scores) == 3
    assert rows.null_count == scores[0].missing
    return found.scores_path, rows.to_pylist(), scores[0].value, found.verdict, scores


def test_whoever_stood_still_changes_nothing(
    played: PlayedEvaluations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver whose lease ran out while it scored finds that another was faster."""
    found = played.add()
    played.drive()
    played.answer(played.store.evaluation(found.id).job_id, SAYS)
    played.drive()
    late = claimed(played.store, found.id, "late")
    driven_to(played, found, EvaluationState.COMPLETED)
    before = played.store.evaluation(found.id)
    results = EvaluationResults("late", [], [], Verdict.PASSED, [])
    assert not played.store.finish_evaluation(late, results)
    assert not played.store.fail_evaluation(late, "late", "late")
    assert played.store.evaluation(found.id) == before


def test_told_to_leave_it_gives_the_lease_back(
    played: PlayedEvaluations, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = played.add()

    def leave(*_: Any) -> bool:
        raise SystemExit(0)

    with monkeypatch.context() as patch:
        patch.setitem(runs._STEPS, EvaluationState.PENDING, leave)
        with pytest.raises(SystemExit):
            played.drive()
    assert played.drive() == 1  # at once
    assert played.store.evaluation(found.id).state is EvaluationState.ANSWERING


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_process_beside_drives_it(played: PlayedEvaluations, database_url: str) -> None:
    settings = Settings.from_env(
        {
            "PAGEMILL_DATABASE_URL": database_url,
            "PAGEMILL_STORAGE_URL": str(played.storage.root),
            "PAGEMILL_SWEEP_SECONDS": "0.1",
        }
    )
    found = played.add()
    driver = EvaluationDriver(settings, played.store)
    driver.start()
    try:
        until(lambda: played.store.evaluation(found.id).state is EvaluationState.ANSWERING)
        played.answer(played.store.evaluation(found.id).job_id, SAYS)
        until(lambda: played.store.evaluation(found.id).state is EvaluationState.COMPLETED)
    finally:
        driver.stop()
    check_done(played, found)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_while_a_process_works_it_is_soon_looked_again(
    played: PlayedEvaluations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A nudge that comes while the process ends is not lost until the next round."""
    driver = EvaluationDriver(replace(played.settings, sweep_seconds=3600), played.store)
    working = True
    process: Any = SimpleNamespace(poll=lambda: None if working else 0)
    driver._process = process
    driver.look()
    assert driver._looks.seconds == background.BUSY_SECONDS
    working = False
    driver.look()
    assert driver._looks.seconds == 3600


# Its steps never end, as a scorer that is somebody's program may not.
HANGS = """
import sys, time
from jobs.evaluation import background, runs
from jobs.evaluation.__main__ import main
for state in runs._STEPS:
    runs._STEPS[state] = lambda step: time.sleep(3600)
sys.exit(main([]))
"""


def test_a_step_that_hangs_ends_once_its_evaluation_is_cancelled(
    played: PlayedEvaluations, database_url: str
) -> None:
    settings = Settings.from_env(
        {
            "PAGEMILL_DATABASE_URL": database_url,
            "PAGEMILL_STORAGE_URL": str(played.storage.root),
            "PAGEMILL_LEASE_SECONDS": "1",
            "PAGEMILL_HEARTBEAT_SECONDS": "0.3",
        }
    )
    found = played.add()
    environment = {**os.environ, **settings.to_env()}
    with subprocess.Popen([sys.executable, "-P", "-c", HANGS], env=environment) as process:
        try:
            until(lambda: played.store.evaluation(found.id).epoch)
            played.store.cancel_evaluation(found.id)
            assert process.wait(TIMEOUT) == 0  # and others are driven by the next one
        finally:
            process.kill()
