"""The chunks that a worker has, and what became of those that it had."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.records import DeviceTime, RowErrorInfo, RowResult
from jobs.result_table import result_table
from jobs.spool import SpoolWriter
from jobs.storage import Storage
from worker import workload as workload_module
from worker.chunk_run import ChunkRun, Stop
from worker.requests import Prepared, request_id
from worker.workload import Outcome, Workload

pytestmark = pytest.mark.quick

BAD = RowErrorInfo("x", "bad", 1)
NO_TIME = DeviceTime()


@pytest.fixture
def make_run(lease, tmp_path):
    folder = Storage(str(tmp_path)).new_job("job_x")

    def make(ordinal=0, rows=3, adopted=(), job="job_x", device=NO_TIME, on_gpu=False):
        chunk_id = f"{job}-v1-{ordinal:06}"
        mine = replace(lease, chunk_id=chunk_id, job_id=job, rows=rows, device=device)
        spool = SpoolWriter(folder, mine.chunk_id, mine.epoch, "mark")
        lines = {i: i + 1 for i in range(rows)}
        return ChunkRun(mine, spool, lines, result_table(adopted), on_gpu=on_gpu)

    return make


def refuse(run, *indices):
    """Finish rows of a run, as errors."""
    results = tuple(RowResult(i, finish_reason="error", error=BAD) for i in indices)
    run.expect(Prepared((), results))


def test_nothing_is_nothing():
    totals = Workload().totals()
    assert (totals.chunks_held, totals.rows_total, totals.lease_age) == (0, 0, 0.0)
    assert totals.outcomes == dict.fromkeys(Outcome, 0)


def test_it_tells_how_far_the_chunks_are_that_it_holds(make_run):
    workload = Workload()
    one, other = make_run(0), make_run(1, rows=5, job="job_y")
    workload.begin(one)
    workload.begin(other)
    refuse(one, 0, 1)
    totals = workload.totals()
    assert (totals.chunks_held, totals.rows_done, totals.rows_total) == (2, 2, 8)
    assert totals.jobs == ("job_x", "job_y")
    assert len(workload) == 2
    workload.end(one)
    assert workload.runs() == [other]


def test_rows_that_were_adopted_were_not_finished_here(make_run):
    workload = Workload()
    adopted = [RowResult(0, "a", "stop"), RowResult(1, finish_reason="error", error=BAD)]
    run = make_run(adopted=adopted)
    workload.begin(run)
    assert workload.totals().rows_done == 2
    assert (workload.totals().completed, workload.totals().failed) == (0, 0)
    refuse(run, 2)
    assert (workload.totals().completed, workload.totals().failed) == (0, 1)


def test_sums_do_not_fall_when_a_chunk_ends_however_it_ends(make_run):
    workload = Workload()
    for ordinal, outcome in enumerate(Outcome):
        run = make_run(ordinal)
        workload.begin(run)
        refuse(run, 0, 1)
        workload.end(run)
        workload.count(outcome)
    assert workload.totals().failed == 2 * len(Outcome)
    assert workload.totals().outcomes == dict.fromkeys(Outcome, 1)


def test_a_chunk_that_is_claimed_again_ends_its_former_run(make_run):
    workload = Workload()
    former, run = make_run(), make_run()
    workload.begin(former)
    refuse(former, 0)
    workload.begin(run)
    assert former.stop_reason is Stop.LEASE_LOST
    workload.end(former)  # its thread ends later, and must not let go of the new run
    assert workload.runs() == [run]
    assert workload.totals().failed == 1


def test_the_lease_age_is_that_of_the_oldest(make_run, monkeypatch):
    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(workload_module, "time", clock)
    workload = Workload()
    runs = [make_run(0), make_run(1)]
    for run in runs:
        workload.begin(run)
        clock.now += 30.0
    assert workload.totals().lease_age == 60.0
    workload.end(runs[0])
    assert workload.totals().lease_age == 30.0


def test_device_time_goes_to_the_chunks_whose_requests_took_it(make_run):
    workload = Workload()
    here, there = make_run(0, on_gpu=True), make_run(1, device=DeviceTime(7.0, 5.0))
    workload.begin(here)
    workload.begin(there)
    spent = {
        request_id(here.lease, 0): 1.0,
        request_id(here.lease, 2, sample=3): 0.25,
        request_id(there.lease, 1): 2.0,
    }
    workload.spend(spent)
    workload.spend(spent)
    assert here.device_time() == DeviceTime(2.5, 2.5)
    assert there.device_time() == DeviceTime(11.0, 5.0)  # and what earlier leases took


def test_device_time_of_others_is_nobodys(make_run):
    """Of a probe, of a run that was left, and of an earlier lease of the same chunk."""
    workload = Workload()
    run, left = make_run(0), make_run(1)
    workload.begin(run)
    former = replace(run.lease, epoch=run.lease.epoch - 1)
    workload.spend({request_id(left.lease, 0): 1.0, "probe": 1.0, request_id(former, 0): 1.0})
    assert run.device_time() == left.device_time() == DeviceTime()
