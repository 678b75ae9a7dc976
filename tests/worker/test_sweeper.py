"""What a worker does beside its chunks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.database import Database
from jobs.storage import Storage
from jobs.store import Store
from tests.support.deployment import Deployment, wait_for
from tests.support.played_evaluation import PlayedEvaluations
from tests.support.schedules import evaluation_rows, make_due, new_schedule
from worker.sweeper import Sweeper


def worker_of(deployment: Deployment, store: Store) -> Any:
    options = SimpleNamespace(
        settings=deployment.settings, log_level="info", log_format="text", exit_when_done=None
    )
    return SimpleNamespace(
        id="host:1:a",
        options=options,
        store=store,
        storage=Storage(deployment.settings.storage_url),
        on_finished=lambda: None,
    )


def test_it_looks_at_the_clock_for_schedules(tmp_path: Path) -> None:
    """At its start, and when the next time comes."""
    deployment = Deployment(tmp_path / "home")
    database = Database(deployment.settings.database_url)
    store = Store(database)
    due, soon = (store.add_schedule(new_schedule(name)) for name in ("due", "soon"))
    make_due(database, due, 5)
    make_due(database, soon, -2)
    sweeper = Sweeper(worker_of(deployment, store), lambda: None)
    sweeper.start()
    try:
        wait_for("both", lambda: len(evaluation_rows(database)) == 2, timeout=60)
    finally:
        sweeper.stop()
    assert {row.name for row in evaluation_rows(database)} == {"due", "soon"}
    database.close()


def test_an_evaluation_is_scored_when_its_job_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the next round would be an hour away."""
    deployment = Deployment(tmp_path / "home")
    deployment.settings = replace(deployment.settings, sweep_seconds=3600)
    database = Database(deployment.settings.database_url)
    store, storage = Store(database), Storage(deployment.settings.storage_url)
    played = PlayedEvaluations(store, storage, deployment.settings, tmp_path / "rows.jsonl")
    played.write()
    found = played.add()
    played.drive()
    looked: list[list[str]] = []
    look = store.evaluations_due

    def look_and_tell() -> list[str]:
        looked.append(look())
        return looked[-1]

    monkeypatch.setattr(store, "evaluations_due", look_and_tell)
    worker = worker_of(deployment, store)
    sweeper = Sweeper(worker, lambda: None)
    sweeper.start()
    try:
        wait_for("a look", lambda: looked, timeout=60)
        played.answer(store.evaluation(found.id).job_id)
        assert looked == [[]]
        worker.on_finished()
        over = lambda: store.evaluation(found.id).finished_at is not None  # noqa: E731
        wait_for("the verdict", over, timeout=120)
    finally:
        sweeper.stop()
    database.close()
