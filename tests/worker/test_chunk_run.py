"""A chunk collects each row once, from any thread, and ends once."""

import threading

import pytest

from engine.messages import TokenCounts
from engine.request import FinishReason, RequestOutput
from jobs.records import Counts, RowErrorInfo, RowResult
from jobs.spool import SpoolWriter, read_spool
from jobs.storage import Storage
from worker.chunk_run import ChunkRun, Stop
from worker.requests import Prepared, request_id

pytestmark = pytest.mark.quick


@pytest.fixture
def folder(tmp_path):
    return Storage(str(tmp_path)).job("job_x")


@pytest.fixture
def make_run(lease, folder):
    def make(adopted=()):
        spool = SpoolWriter(folder, lease.chunk_id, lease.epoch, "mark")
        return ChunkRun(
            lease, spool, {i: i + 1 for i in range(3)}, {r.row_index: r for r in adopted}
        )

    return make


def prepared(lease, *indices, refused=()):
    return Prepared(
        (), {request_id(lease, i): i for i in indices}, dict.fromkeys(indices, 5), refused
    )


def answer(lease, index, reason=FinishReason.STOP, **more):
    return RequestOutput(request_id(lease, index), (1, 2), "hi", reason, 10, 8, 2, **more)


def test_it_ends_when_every_row_is_in(make_run, lease):
    run = make_run()
    run.expect(prepared(lease, 0, 1, 2))
    for index in (2, 0, 1):
        run.accept(answer(lease, index))
    assert run.wait() is None
    assert run.counts() == Counts(
        completed=3, prompt_tokens=30, cached_tokens=24, completion_tokens=6
    )
    assert run.results()[1] == RowResult(1, "hi", "stop", 10, 8, 2, 5)
    assert run.unfinished() == ()


def test_an_answer_counts_once(make_run, lease):
    run = make_run()
    run.expect(prepared(lease, 0, 1, 2))
    run.accept(answer(lease, 0))
    run.accept(answer(lease, 0))
    assert run.counts().completed == 1


def test_an_unknown_answer_is_passed_over(make_run, lease):
    run = make_run()
    run.accept(answer(lease, 0))
    assert run.results() == {}


def test_an_engine_error_is_the_rows_error_with_its_line(make_run, lease):
    run = make_run()
    run.expect(prepared(lease, 1))
    run.accept(
        answer(lease, 1, FinishReason.ERROR, error_code="prompt_too_long", error_message="9 > 8")
    )
    result = run.results()[1]
    assert result.text is None
    assert result.error == RowErrorInfo("prompt_too_long", "9 > 8", 2, None)
    assert run.counts().failed == 1


def test_adopted_and_refused_rows_count(make_run, lease):
    adopted = RowResult(0, "old", "stop", 4, 0, 1)
    refused = RowResult(1, finish_reason="error", error=RowErrorInfo("x", "y", 2))
    run = make_run([adopted])
    run.expect(prepared(lease, 2, refused=(refused,)))
    run.accept(answer(lease, 2))
    assert run.wait() is None
    assert (run.counts().completed, run.counts().failed) == (2, 1)


def test_a_fully_adopted_chunk_needs_no_engine(make_run):
    run = make_run([RowResult(i, "old", "stop") for i in range(3)])
    assert run.wait() is None


def test_running_rows_show_their_tokens(make_run, lease):
    run = make_run()
    run.expect(prepared(lease, 0, 1))
    running = {
        request_id(lease, 0): TokenCounts(10, 8, 3),
        "another chunk's row": TokenCounts(1, 1, 1),
    }
    assert run.counts(running) == Counts(prompt_tokens=10, cached_tokens=8, completion_tokens=3)


def test_flush_writes_each_row_once(make_run, lease, folder):
    run = make_run()
    run.expect(prepared(lease, 0, 1, 2))
    run.accept(answer(lease, 0))
    run.flush()
    run.flush()
    run.accept(answer(lease, 1))
    run.flush()
    assert sorted(read_spool(folder, lease.chunk_id, "mark")) == [0, 1]
    assert len(list(folder.path.rglob("*.arrow"))) == 2


def test_rows_stay_unspooled_when_the_disk_refuses(make_run, lease, folder, monkeypatch):
    run = make_run()
    run.expect(prepared(lease, 0))
    run.accept(answer(lease, 0))
    with monkeypatch.context() as patch:
        patch.setattr(SpoolWriter, "write", lambda *a: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            run.flush()
    run.flush()
    assert list(read_spool(folder, lease.chunk_id, "mark")) == [0]


def test_a_lost_lease_writes_nothing_more(make_run, lease, folder):
    run = make_run()
    run.expect(prepared(lease, 0))
    run.accept(answer(lease, 0))
    run.stop(Stop.HAND_BACK)
    run.stop(Stop.LEASE_LOST)
    run.stop(Stop.JOB_STOPPING)
    run.flush()
    assert run.wait() is Stop.LEASE_LOST
    assert read_spool(folder, lease.chunk_id, "mark") == {}


def test_a_waiter_is_woken_by_stop(make_run):
    run = make_run()
    seen = []
    thread = threading.Thread(target=lambda: seen.append(run.wait()))
    thread.start()
    run.stop(Stop.HAND_BACK)
    thread.join(5)
    assert seen == [Stop.HAND_BACK]
