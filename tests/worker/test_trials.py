"""The rows of a chunk over which workers die, against workers of a few lines."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.errors import StorageUnavailable
from jobs.records import ChunkLease
from jobs.storage import Storage
from worker.suspects import DEATHS_ALONE
from worker.trial_records import DEATHS_BEFORE_TRIALS, Record, TrialRecords
from worker.trials import Plan, Trials, Verdict, plan

pytestmark = pytest.mark.quick

EPOCHS = tuple(range(4, 4 + DEATHS_ALONE))  # of leases that ended while a row was alone


class Workers:
    """Workers that claim one chunk after each other, and die of some rows.

    Args:
        killed: leases, from 0, whose worker is killed from outside before it begins a group.
    """

    def __init__(self, rows: int, poison: set[int], killed: Mapping[int, int]) -> None:
        self.finished: set[int] = set()
        self.blamed: set[int] = set()
        self.leases = 0
        self._rows, self._poison, self._killed = range(rows), poison, killed

    def run(self) -> None:
        record: Record | None = None
        while len(self.finished | self.blamed) < len(self._rows):
            todo = [r for r in self._rows if r not in self.finished | self.blamed]
            made = plan(record, todo, len(self.finished | self.blamed))
            self.blamed |= set(made.accused)
            # The first lease keeps no record.
            left = self._die(made, self._killed.get(self.leases))
            record = replace(left, epoch=self.leases + 1) if self.leases else None
            self.leases += 1
            assert self.leases < 1000

    def _die(self, made: Plan, dies_at: int | None) -> Record:
        for number, group in enumerate(made.groups):
            record = made.record
            if record.on_trial:
                record = replace(record, trying=group)
            if number == dies_at or self._poison & set(group):
                return record
            self.finished |= set(group)
        return made.record


@given(st.integers(1, 70).flatmap(
    lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), max_size=4))
))  # fmt: skip
def test_just_the_rows_that_kill_workers_are_blamed_after_a_bounded_number_of_deaths(
    chunk: tuple[int, set[int]],
) -> None:
    rows, poison = chunk
    workers = Workers(rows, poison, {})
    workers.run()
    assert workers.blamed == poison
    assert workers.finished == set(range(rows)) - poison
    each = 1 + math.ceil(math.log2(rows)) + DEATHS_ALONE
    assert workers.leases <= 2 + DEATHS_BEFORE_TRIALS + len(poison) * each


@given(
    st.integers(1, 40),
    st.dictionaries(st.integers(0, 12), st.integers(0, 3), max_size=DEATHS_ALONE - 1),
)
def test_kills_from_outside_make_nobody_guilty(rows: int, killed: dict[int, int]) -> None:
    workers = Workers(rows, set(), killed)
    workers.run()
    assert workers.blamed == set()


def test_a_worker_that_leaves_in_order_counts_against_nobody() -> None:
    record = Record(DEATHS_BEFORE_TRIALS, 0, (3,), {3: EPOCHS[:-1]}, epoch=EPOCHS[-1])
    found = plan(record, [1, 2, 3], 0)
    assert (found.accused, found.record.alone) == ((3,), {3: EPOCHS})
    left = replace(record, trying=(), ended=True)
    found = plan(left, [1, 2, 3], 0)
    assert (found.groups, found.accused) == (((1, 2), (3,)), ())
    calm = plan(Record(1, 0, ended=True), [1, 2, 3], 0)
    assert (calm.record.deaths, calm.groups) == (1, ((1, 2, 3),))


def test_a_death_after_which_more_rows_are_finished_does_not_count() -> None:
    assert plan(Record(1, finished=5), [1, 2], 6).record == Record(0, 6)
    assert plan(Record(1, finished=5), [1, 2], 5).record.on_trial


def lease(epoch: int, owner: str | None = None) -> ChunkLease:
    return ChunkLease(
        chunk_id="c", job_id="j", epoch=epoch, owner=owner or f"w{epoch}", folder="j",
        input_path="", ordinal=0, window=0, rows=4, model="m", options={}, seed=0, priority=0,
        version=1,
    )  # fmt: skip


class Chunk:
    """The folder of a chunk, and leases of it; each has a worker of its own."""

    def __init__(self, home: Path) -> None:
        self.folder = Storage(str(home)).new_job("j")
        self.records = TrialRecords(self.folder, "c")

    def claim(
        self, epoch: int, todo: Sequence[int], finished: int = 0, owner: str | None = None
    ) -> Trials:
        of = lease(epoch, owner)
        return Trials(self.records, of, self.records.before(of), todo, finished, patience=0)


@pytest.fixture
def chunk(tmp_path: Path) -> Chunk:
    return Chunk(tmp_path / "storage")


def test_the_record_outlives_the_worker(chunk: Chunk, tmp_path: Path) -> None:
    chunk.claim(1, range(4))
    assert not list(tmp_path.rglob("*.json")), "the first lease writes nothing"
    for epoch in range(2, 3 + DEATHS_BEFORE_TRIALS):
        trials = chunk.claim(epoch, range(4))
        assert trials.on_trial == (epoch == 2 + DEATHS_BEFORE_TRIALS)
    assert trials.plan.groups == ((0, 1), (2, 3))
    trials.begin((0, 1))
    trials.end_group()
    trials.begin((2, 3))
    later = chunk.claim(20, [2, 3], 2)
    assert later.plan.groups == ((2,), (3,))
    later.end()
    assert chunk.claim(21, [2, 3], 2).plan.groups == ((2, 3),)


def tried_alone(chunk: Chunk, leases: int, owner: str | None = None) -> list[Trials]:
    """Leases one after the other that end while row 0 is alone."""
    chunk.records.write(Record(DEATHS_BEFORE_TRIALS, 0, (0,), {}, epoch=2, owner="gone"))
    made = []
    for epoch in range(3, 3 + leases):
        made.append(chunk.claim(epoch, range(4), owner=owner))
        made[-1].begin((0,))
    return made


def test_a_row_is_blamed_when_enough_workers_died_of_it(chunk: Chunk) -> None:
    tried_alone(chunk, DEATHS_ALONE - 1)
    last = chunk.claim(20, range(4))
    assert last.plan.groups == ((1, 2, 3),)
    assert last.verdict() == Verdict({0: DEATHS_ALONE})


def test_a_worker_that_outlives_its_lease_is_no_death(chunk: Chunk) -> None:
    """It was frozen, say, and wakes when another has the chunk."""
    frozen, *_ = tried_alone(chunk, DEATHS_ALONE - 1)
    last = chunk.claim(20, range(4))
    frozen.end()
    assert last.verdict() == Verdict({}, (0,))
    last.begin((0,))
    assert chunk.claim(21, range(4)).verdict() == Verdict({0: DEATHS_ALONE})


def test_it_is_none_for_the_leases_to_come_either(chunk: Chunk) -> None:
    for trials in tried_alone(chunk, DEATHS_ALONE - 1):
        trials.end()
    last = chunk.claim(20, range(4))
    assert last.plan.accused == ()
    assert last.plan.record.alone == {0: (2,)}


def test_a_worker_that_claims_its_own_chunk_again_did_not_die(chunk: Chunk) -> None:
    """Its database was away for longer than its lease; nobody had the chunk meanwhile."""
    tried_alone(chunk, 10, owner="us")
    assert chunk.claim(20, range(4), owner="us").plan.record.alone == {0: (2,)}


def test_a_group_whose_turn_comes_after_the_end_is_not_written_down(chunk: Chunk) -> None:
    (trials,) = tried_alone(chunk, 1)
    trials.end()
    trials.begin((1,))
    record = chunk.records.read(3)
    assert record is not None
    assert (record.trying, record.ended) == ((), True)


def test_what_was_removed_with_its_job_is_not_written_again(chunk: Chunk, tmp_path: Path) -> None:
    (trials,) = tried_alone(chunk, 1)
    chunk.folder.remove("_spool")
    trials.end()
    trials.begin((1,))
    assert list(tmp_path.rglob("*.json")) == []


def test_a_record_that_cannot_be_understood_is_none(
    chunk: Chunk, caplog: pytest.LogCaptureFixture
) -> None:
    broken = (b"", b"[]", b'{"deaths": 1}', b"\xff", b"[" * 100_000)
    for content in broken:
        with chunk.folder.create("_spool/c/e2.json") as file:
            file.write(content)
        assert chunk.claim(3, [1]).plan.record == Record(epoch=3, owner="w3")
    assert caplog.text.count("cannot be read") == len(broken)


def test_a_storage_that_is_away_is_no_missing_record(chunk: Chunk, tmp_path: Path) -> None:
    chunk.records.write(Record(epoch=2))
    shutil.rmtree(tmp_path / "storage")  # it is not mounted
    with pytest.raises(StorageUnavailable):
        chunk.records.before(lease(3))
