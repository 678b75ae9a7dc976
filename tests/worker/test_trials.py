"""The rows of a chunk over which workers die, against workers of a few lines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.records import ChunkLease
from jobs.storage import Storage
from worker.suspects import DEATHS_ALONE
from worker.trials import DEATHS_BEFORE_TRIALS, Plan, Record, Trials, plan

pytestmark = pytest.mark.quick


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
            self.blamed |= made.blamed.keys()
            # The first lease keeps no record.
            left = self._die(made, self._killed.get(self.leases))
            record = left if self.leases else None
            self.leases += 1
            assert self.leases < 1000

    def _die(self, made: Plan, dies_at: int | None) -> Record:
        for number, group in enumerate(made.groups):
            record = made.record
            if record.on_trial:
                record = Record(record.deaths, record.finished, group, record.alone)
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
    record = Record(DEATHS_BEFORE_TRIALS, 0, (3,), {3: DEATHS_ALONE - 1}, ended=False)
    assert plan(record, [1, 2, 3], 0).blamed == {3: DEATHS_ALONE}
    left = Record(DEATHS_BEFORE_TRIALS, 0, (), {3: DEATHS_ALONE - 1}, ended=True)
    found = plan(left, [1, 2, 3], 0)
    assert (found.groups, found.blamed) == (((1, 2), (3,)), {})
    calm = plan(Record(1, 0, ended=True), [1, 2, 3], 0)
    assert (calm.record.deaths, calm.groups) == (1, ((1, 2, 3),))


def test_a_death_after_which_more_rows_are_finished_does_not_count() -> None:
    assert plan(Record(1, finished=5), [1, 2], 6).record == Record(0, 6)
    assert plan(Record(1, finished=5), [1, 2], 5).record.on_trial


def lease(epoch: int) -> ChunkLease:
    return ChunkLease(
        chunk_id="c", job_id="j", epoch=epoch, owner="w", folder="j", input_path="", ordinal=0,
        window=0, rows=4, model="m", options={}, seed=0, priority=0, version=1,
    )  # fmt: skip


def test_the_record_outlives_the_worker(tmp_path: Path) -> None:
    folder = Storage(str(tmp_path)).job("j")
    folder.path.mkdir()
    Trials(folder, lease(1), range(4), 0)
    assert not list(tmp_path.rglob("*.json")), "the first lease writes nothing"
    for epoch in range(2, 3 + DEATHS_BEFORE_TRIALS):
        trials = Trials(folder, lease(epoch), range(4), 0)
        assert trials.on_trial == (epoch == 2 + DEATHS_BEFORE_TRIALS)
    assert trials.plan.groups == ((0, 1), (2, 3))
    trials.begin((0, 1))
    trials.end_group()
    trials.begin((2, 3))
    later = Trials(folder, lease(20), [2, 3], 2)
    assert later.plan.groups == ((2,), (3,))
    later.end()
    assert Trials(folder, lease(21), [2, 3], 2).plan.groups == ((2, 3),)


def test_a_record_that_cannot_be_read_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Storage(str(tmp_path)).job("j")
    folder.path.mkdir()
    for content in (b"", b"[]", b'{"deaths": 1}', b"\xff"):
        with folder.create("_spool/c/e2.json") as file:
            file.write(content)
        assert Trials(folder, lease(3), [1], 0).plan.record == Record()
    assert caplog.text.count("cannot be read") == 4
