"""What a worker does beside its chunks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jobs.database import Database
from jobs.storage import Storage
from jobs.store import Store
from tests.support.deployment import Deployment, wait_for
from tests.support.schedules import evaluation_rows, make_due, new_schedule
from worker.sweeper import Sweeper


def test_it_looks_at_the_clock_for_schedules(tmp_path: Path) -> None:
    """At its start, and when the next time comes."""
    deployment = Deployment(tmp_path / "home")
    database = Database(deployment.settings.database_url)
    store = Store(database)
    due, soon = (store.add_schedule(new_schedule(name)) for name in ("due", "soon"))
    make_due(database, due, 5)
    make_due(database, soon, -2)
    options = SimpleNamespace(settings=deployment.settings, log_level="info", log_format="text")
    worker: Any = SimpleNamespace(
        id="host:1:a",
        options=options,
        store=store,
        storage=Storage(deployment.settings.storage_url),
    )
    sweeper = Sweeper(worker, lambda: None)
    sweeper.start()
    try:
        wait_for("both", lambda: len(evaluation_rows(database)) == 2, timeout=60)
    finally:
        sweeper.stop()
    assert {row.name for row in evaluation_rows(database)} == {"due", "soon"}
    database.close()
