"""How a worker runs a chunk over which others died; the engine is held in the test's hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from jobs import layout
from jobs.store import Store
from tests.support.deployment import wait_for
from worker.suspects import DEATHS_ALONE
from worker.trial_records import DEATHS_BEFORE_TRIALS, Record, TrialRecords

# Leases that ended while row 3 was alone; they left no records, so their workers are dead.
ALONE = {3: tuple(range(100, 99 + DEATHS_ALONE))}


def after(place: Any, record: Record) -> Any:
    """A worker that has claimed the chunk after a second lease that left this record."""
    for _ in range(2):
        assert place.store.claim_chunk("gone", place.model) is not None
        assert place.store.requeue_owned("gone") == 1
    records(place).write(replace(record, epoch=2, owner="gone"))
    return place.worker()


def records(place: Any) -> TrialRecords:
    return TrialRecords(place.storage.job(place.job), place.chunk().id)


def left(place: Any, epoch: int = 3) -> dict[str, Any]:
    path = layout.trials(place.chunk().id, epoch)
    found: dict[str, Any] = json.loads(place.storage.job(place.job).read(path))
    return found


def submitted(worker: Any) -> list[int]:
    """Rows of the next group."""
    waiting = wait_for("a group", lambda: list(worker._bridge.waiting))
    return [int(request_id.split(":")[-2]) for request_id in waiting]


def test_rows_on_trial_run_in_groups_and_the_guilty_one_not_at_all(place: Any) -> None:
    place.store = Store(place.database, lease_seconds=2)
    worker = after(place, Record(DEATHS_BEFORE_TRIALS, 0, (3,), ALONE))
    thread = place.begin(worker)
    assert submitted(worker) == [0, 1, 2, 4]
    assert left(place)["trying"] == [0, 1, 2, 4]
    worker._bridge.answer()
    thread.join(60)
    counts = place.store.job(place.job).counts
    assert (counts.completed, counts.failed) == (4, 1)


def test_the_next_group_follows_when_the_one_before_is_spooled(place: Any) -> None:
    worker = after(place, Record(DEATHS_BEFORE_TRIALS, 0, (0, 1, 2)))
    thread = place.begin(worker)
    for group in ([0, 1], [2], [3, 4]):
        assert submitted(worker) == group
        assert left(place)["trying"] == group
        spool = place.storage.job(place.job).path / layout.spool_folder(place.chunk().id)
        assert len(list(spool.glob("e3-*.arrow"))) == [[0, 1], [2], [3, 4]].index(group)
        worker._bridge.answer()
    thread.join(60)
    assert place.store.job(place.job).counts.completed == 5


def test_a_worker_that_leaves_during_a_trial_counts_against_nobody(place: Any) -> None:
    worker = after(place, Record(DEATHS_BEFORE_TRIALS, 0, (0, 3), {4: (100,)}))
    thread = place.begin(worker)
    assert submitted(worker) == [0]
    worker.hand_back()
    thread.join(60)
    assert left(place) == {
        "deaths": DEATHS_BEFORE_TRIALS, "finished": 0, "trying": [], "alone": {"4": [100]},
        "ended": True, "epoch": 3, "owner": worker.id,
    }  # fmt: skip


def test_a_worker_that_loses_its_lease_during_a_trial_and_lives_is_no_death(place: Any) -> None:
    worker = after(place, Record(DEATHS_BEFORE_TRIALS, 0, (0, 3)))
    thread = place.begin(worker)
    assert submitted(worker) == [0]
    assert left(place)["trying"] == [0]
    assert place.store.requeue_owned(worker.id) == 1
    thread.join(60)
    assert (left(place)["trying"], left(place)["ended"]) == ([], True)


def test_a_row_is_not_blamed_while_its_worker_may_come_back(place: Any) -> None:
    place.store = Store(place.database, lease_seconds=2)
    worker = after(place, Record(DEATHS_BEFORE_TRIALS, 0, (3,), ALONE))
    thread = place.begin(worker)
    assert submitted(worker) == [0, 1, 2, 4]
    records(place).write(Record(epoch=2, owner="gone", ended=True))  # it was only frozen
    worker._bridge.answer()
    assert submitted(worker) == [3]
    assert left(place)["trying"] == [3]
    worker._bridge.answer()
    thread.join(60)
    assert place.store.job(place.job).counts.completed == 5


def test_a_chunk_without_deaths_is_not_tried(place: Any) -> None:
    worker = after(place, Record(0, 0))
    thread = place.begin(worker)
    assert submitted(worker) == [0, 1, 2, 3, 4]
    assert (left(place)["deaths"], left(place)["trying"]) == (1, [])
    worker._bridge.answer()
    thread.join(60)
