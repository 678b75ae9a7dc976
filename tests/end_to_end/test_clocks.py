"""A worker whose clock jumps to and fro works as ever: leases go by the database's clock."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta

import pytest

from jobs.database import Database
from jobs.states import ChunkState
from jobs.store import Store
from tests.support import without_pandas
from tests.support.deployment import Deployment, RunningWorker, wait_for

ENGINE = ("--num-blocks", "96", "--max-model-len", "256", "--threads", "1", "--max-num-seqs", "2")
ROWS = 48
# Half a second at +6 h, then half a second at -6 h, in all that Python tells of the wall clock.
JUMPS = """
import datetime, time

# The C code of pandas takes no other datetime.
from without_pandas import hide_pandas
hide_pandas()

_time, _time_ns, _datetime = time.time, time.time_ns, datetime.datetime


def _shift():
    return 6 * 3600 if int(time.monotonic() * 2) % 2 else -6 * 3600


class _Kind(type):
    def __instancecheck__(cls, value):
        return isinstance(value, _datetime)


class _Jumping(_datetime, metaclass=_Kind):
    @classmethod
    def now(cls, tz=None):
        return _datetime.now(tz) + datetime.timedelta(seconds=_shift())

    @classmethod
    def utcnow(cls):
        return cls.now(datetime.timezone.utc).replace(tzinfo=None)


time.time = lambda: _time() + _shift()
time.time_ns = lambda: _time_ns() + _shift() * 10**9
datetime.datetime = _Jumping
"""


def jumps(worker: RunningWorker) -> bool:
    """Whether its log shows hours that are not these, before and after them."""
    now = datetime.now(UTC)
    lines = [line for line in worker.logged().splitlines() if line.startswith("{")]
    off = [datetime.fromisoformat(json.loads(line)["ts"]) - now for line in lines]
    return min(off) < -timedelta(hours=5) and max(off) > timedelta(hours=5)


@pytest.mark.parametrize("deployment", ["sqlite+memory", "postgresql+redis"], indirect=True)
def test_a_clock_that_jumps_costs_no_lease_and_doubles_no_row(
    deployment: Deployment, tiny_model, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.hold_leases(60)
    monkeypatch.setitem(deployment.env, "PAGEMILL_LOG_FORMAT", "json")
    prompts = [
        {"prompt": f"Question {i}?", "max_tokens": 60, "ignore_eos": True} for i in range(ROWS)
    ]
    limits = ("--deadline", "1h", "--row-timeout", "1800")
    patch = deployment.home / "patch"
    patch.mkdir()
    (patch / "sitecustomize.py").write_text(JUMPS)
    shutil.copy(without_pandas.__file__, patch)
    database = Database(deployment.settings.database_url)
    store = Store(database)
    jumping = None
    try:
        with monkeypatch.context() as patched:
            patched.setitem(deployment.env, "PYTHONPATH", os.fspath(patch))
            job = deployment.submit(prompts, tiny_model, "--chunk-rows", "4", *limits)
            deployment.cli("pause", job)  # until both are there
            options = (*ENGINE, "--concurrency", "1", "--exit-when-done", job)
            jumping = RunningWorker(deployment, tiny_model, options)
        with deployment.worker(tiny_model, *options) as steady:
            for worker in (jumping, steady):
                wait_for("a worker", lambda worker=worker: "ready for chunks" in worker.logged())
            deployment.cli("resume", job)
            for worker in (jumping, steady):
                assert worker.wait(150) == 0, worker.logged()
        assert jumps(jumping)
        assert not jumps(steady)
        chunks = store.chunks(job)
        assert [c.state for c in chunks] == [ChunkState.DONE] * (ROWS // 4)
        assert {c.lease_epoch for c in chunks} == {1}, "a lease was lost, or taken twice"
        shares = {w.pid: w.status.rows_completed for w in store.workers(all=True)}
        assert sorted(shares) == sorted((jumping.process.pid, steady.process.pid))
        assert sum(shares.values()) == ROWS
        assert shares[jumping.process.pid] > 0
        for worker in store.workers(all=True):
            assert abs(store.now() - worker.seen_at) < timedelta(hours=1)
        record = store.job(job)
        assert record.deadline_at is not None
        assert abs(record.deadline_at - record.created_at - timedelta(hours=1)) < timedelta(hours=1)
    finally:
        if jumping is not None:
            jumping.kill()
        database.close()
    answers = deployment.results(job)
    assert [row["row_index"] for row in answers] == list(range(ROWS))
    assert all(row["error"] is None and row["completion_tokens"] == 60 for row in answers)
