"""What the storage refused is asked for again, less and less often, and told meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobs.database import Database, upgrade
from jobs.errors import OutputError, StorageUnavailable
from jobs.store import Store
from tests.support.job_store import new_job
from worker import storage_watch
from worker.storage_watch import FIRST_PAUSE, LONGEST_PAUSE, StorageWatch

pytestmark = pytest.mark.quick

FULL = StorageUnavailable("the disk is full", "room in the storage")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    upgrade(url)
    database = Database(url)
    yield Store(database)
    database.close()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which a test sets."""
    time = [1000.0]
    monkeypatch.setattr(storage_watch, "time", SimpleNamespace(monotonic=lambda: time[0]))
    return time


def test_pauses_grow_and_have_a_bound(store: Store, now: list[float]) -> None:
    job = store.insert_job(new_job()).id
    watch = StorageWatch(store)
    pauses = []
    for _ in range(12):
        assert watch.is_due("a part")
        pauses.append(watch.refused("a part", job, FULL))
        now[0] += 0.9 * pauses[-1]
        assert not watch.is_due("a part")
        assert watch.is_due("another")
        now[0] += 0.1 * pauses[-1]
    assert pauses[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert set(pauses[6:]) == {LONGEST_PAUSE}

    watch.worked("a part")
    assert watch.refused("a part", job, FULL) == FIRST_PAUSE


def test_the_job_waits_until_all_of_it_works(store: Store) -> None:
    job = store.insert_job(new_job()).id
    watch = StorageWatch(store)
    for name in ("a part", "a segment"):
        watch.refused(name, job, FULL)
    assert (store.job(job).waiting_for, watch.waits_for) == (FULL.waits_for, FULL.waits_for)

    watch.worked("a segment")
    watch.worked("something else")
    assert store.job(job).waiting_for == FULL.waits_for

    watch.worked("a part")
    assert (store.job(job).waiting_for, watch.waits_for) == (None, None)


def test_nothing_is_claimed_until_a_probe_succeeds(store: Store, now: list[float]) -> None:
    job = store.insert_job(new_job()).id
    watch = StorageWatch(store)
    answers: list[Exception | None] = [FULL, None]
    asked = 0

    def probe() -> None:
        nonlocal asked
        asked += 1
        if (answer := answers.pop(0)) is not None:
            raise answer

    watch.refused("an input", job, FULL, probe)
    watch.probe()
    assert (asked, watch.readable) == (0, False)
    now[0] += FIRST_PAUSE
    watch.probe()
    watch.probe()
    assert (asked, watch.readable) == (1, False)
    now[0] += 2 * FIRST_PAUSE
    watch.probe()
    assert (asked, watch.readable) == (2, True)
    assert store.job(job).waiting_for is None


def test_a_probe_that_fails_for_another_reason_is_over(store: Store, now: list[float]) -> None:
    def probe() -> None:
        raise OutputError("it was removed")

    job = store.insert_job(new_job()).id
    watch = StorageWatch(store)
    watch.refused("an input", job, FULL, probe)
    now[0] += FIRST_PAUSE
    watch.probe()
    assert watch.readable


def test_who_has_to_leave_does_without(store: Store) -> None:
    job = store.insert_job(new_job()).id
    watch = StorageWatch(store)
    tried = 0

    def action() -> None:
        nonlocal tried
        tried += 1
        raise FULL

    with pytest.raises(StorageUnavailable):
        watch.until_done("a part", job, action, lambda _: tried == 3)

    assert tried == 3
    assert watch.waits_for is None
