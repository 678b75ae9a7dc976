"""A chunk collects each row once, from any thread, and ends once."""

import threading

import pytest

from engine.messages import TokenCounts
from engine.request import FinishReason, Request, RequestOutput
from jobs.records import Counts, RowErrorInfo, RowResult
from jobs.result_table import result_table
from jobs.spool import SpoolWriter, read_spool
from jobs.storage import Storage
from worker.chunk_run import ChunkRun, Stop
from worker.requests import Prepared, PreparedRow, request_id

pytestmark = pytest.mark.quick


@pytest.fixture
def folder(tmp_path):
    return Storage(str(tmp_path)).new_job("job_x")


@pytest.fixture
def make_run(lease, folder):
    def make(adopted=()):
        spool = SpoolWriter(folder, lease.chunk_id, lease.epoch, "mark")
        return ChunkRun(lease, spool, {i: i + 1 for i in range(3)}, result_table(adopted))

    return make


def prepared(lease, *indices, refused=(), n=1):
    def row(index):
        samples = (Request(request_id(lease, index, i), (1,), sample_index=i) for i in range(n))
        return PreparedRow(index, 5, tuple(samples))

    return Prepared(tuple(map(row, indices)), refused)


def answer(lease, index, reason=FinishReason.STOP, sample=0, text="hi", **more):
    return RequestOutput(request_id(lease, index, sample), (1, 2), text, reason, 10, 8, 2, **more)


def results(run):
    """By row_index; no row is there twice."""
    rows = run.results().to_pylist()
    assert len({r["row_index"] for r in rows}) == len(rows)
    return {r["row_index"]: r for r in rows}


def spooled(folder, lease):
    return sorted(read_spool(folder, lease.chunk_id, "mark")["row_index"].to_pylist())


def test_it_ends_when_every_row_is_in(make_run, lease):
    run = make_run()
    run.expect(prepared(lease, 0, 1, 2))
    for index in (2, 0, 1):
        run.accept(answer(lease, index))
    assert run.wait() is None
    assert run.counts() == Counts(
        completed=3, prompt_tokens=30, cached_tokens=24, completion_tokens=6
    )
    assert results(run)[1] == result_table([RowResult(1, "hi", "stop", 10, 8, 2, 5)]).to_pylist()[0]
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
    assert results(run) == {}


def test_an_engine_error_is_the_rows_error_with_its_line(make_run, lease):
    run = make_run()
    run.expect(prepared(lease, 1))
    run.accept(
        answer(lease, 1, FinishReason.ERROR, error_code="prompt_too_long", error_message="9 > 8")
    )
    result = results(run)[1]
    assert result["text"] is None
    assert result["error"] == {
        "code": "prompt_too_long", "message": "9 > 8", "line": 2, "field": None,
    }  # fmt: skip
    assert run.counts().failed == 1


def test_adopted_and_refused_rows_count(make_run, lease):
    adopted = RowResult(0, "old", "stop", 4, 0, 1)
    refused = RowResult(1, finish_reason="error", error=RowErrorInfo("x", "y", 2))
    run = make_run([adopted])
    assert [run.is_finished(i) for i in range(3)] == [True, False, False]
    run.expect(prepared(lease, 2, refused=(refused,)))
    run.accept(answer(lease, 2))
    assert run.wait() is None
    assert run.counts() == Counts(
        completed=2, failed=1, prompt_tokens=14, cached_tokens=8, completion_tokens=3
    )
    assert [r.text for r in (adopted, refused)] == [results(run)[i]["text"] for i in (0, 1)]


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


def test_a_row_of_several_samples_is_one_row_when_all_are_in(make_run, lease, folder):
    run = make_run()
    run.expect(prepared(lease, 0, n=3))
    assert len(run.unfinished()) == 3
    for sample in (2, 0):
        run.accept(answer(lease, 0, sample=sample, text=f"text {sample}"))
        run.flush()
    assert results(run) == {}
    assert spooled(folder, lease) == []
    assert run.unfinished() == (request_id(lease, 0, 1),)
    assert run.counts() == Counts()

    run.accept(answer(lease, 0, sample=1, text="text 1"))
    row = results(run)[0]
    assert [c["text"] for c in row["choices"]] == ["text 0", "text 1", "text 2"]
    assert row["text"] == "text 0"
    assert run.counts() == Counts(
        completed=1, prompt_tokens=10, cached_tokens=8, completion_tokens=6
    )


def test_the_prompt_of_several_running_samples_counts_once(make_run, lease):
    run = make_run()
    run.expect(prepared(lease, 0, n=3))
    run.accept(answer(lease, 0, sample=1))
    running = {request_id(lease, 0, 0): TokenCounts(10, 0, 7)}
    assert run.counts(running) == Counts(prompt_tokens=10, completion_tokens=9)
    # Between two reports, or while another engine is started, what is finished still counts.
    assert run.counts({}) == Counts(prompt_tokens=10, cached_tokens=8, completion_tokens=2)


def test_flush_writes_each_row_once(make_run, lease, folder):
    run = make_run()
    run.expect(prepared(lease, 0, 1, 2))
    run.accept(answer(lease, 0))
    run.flush()
    run.flush()
    run.accept(answer(lease, 1))
    run.flush()
    assert spooled(folder, lease) == [0, 1]
    assert sorted(results(run)) == [0, 1]
    assert len(list(folder.path.rglob("*.arrow"))) == 2


def test_rows_stay_unspooled_when_the_disk_refuses(make_run, lease, folder, monkeypatch):
    run = make_run()
    run.expect(prepared(lease, 0))
    run.accept(answer(lease, 0))
    with monkeypatch.context() as patch:
        patch.setattr(SpoolWriter, "write", lambda *a: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            run.flush()
    assert list(results(run)) == [0]
    run.flush()
    assert spooled(folder, lease) == [0]
    assert list(results(run)) == [0]


def test_rows_that_finish_while_others_are_written_are_not_lost(
    make_run, lease, folder, monkeypatch
):
    run = make_run()
    run.expect(prepared(lease, 0, 1))
    run.accept(answer(lease, 0))

    def write(spool, table):
        run.accept(answer(lease, 1))
        really_write(spool, table)

    really_write = SpoolWriter.write
    with monkeypatch.context() as patch:
        patch.setattr(SpoolWriter, "write", write)
        run.flush()
    assert spooled(folder, lease) == [0]
    assert sorted(results(run)) == [0, 1]
    run.flush()
    assert spooled(folder, lease) == [0, 1]


def test_a_lost_lease_writes_nothing_more(make_run, lease, folder):
    run = make_run()
    run.expect(prepared(lease, 0))
    run.accept(answer(lease, 0))
    run.stop(Stop.HAND_BACK)
    run.stop(Stop.LEASE_LOST)
    run.stop(Stop.JOB_STOPPING)
    run.flush()
    assert run.wait() is Stop.LEASE_LOST
    assert spooled(folder, lease) == []


def test_a_waiter_is_woken_by_stop(make_run):
    run = make_run()
    seen = []
    thread = threading.Thread(target=lambda: seen.append(run.wait()))
    thread.start()
    run.stop(Stop.HAND_BACK)
    thread.join(60)
    assert seen == [Stop.HAND_BACK]
