"""A real worker as those see it who have to keep it running: its log, metrics, health and row."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.database import Database
from jobs.store import Store
from tests.support.deployment import wait_for
from tests.support.scraping import get, records, scrape, url_of

ENGINE = ("--num-blocks", "256", "--max-model-len", "256", "--threads", "1", "--max-num-seqs", "2")
STEP = "(starting the engine|loading torch|loading weights \\d+%|packing|sizing)"
# What a worker process does by itself, whatever it is connected to.
ON_ONE = pytest.mark.parametrize("deployment", ["sqlite+memory"], indirect=True)
PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")


def questions(count, tokens=60):
    return [
        {"prompt": f"Question {i}?", "max_tokens": tokens, "ignore_eos": True} for i in range(count)
    ]


class Rows:
    """The table of workers."""

    def __init__(self, deployment):
        self._database = Database(deployment.settings.database_url)
        self._store = Store(self._database, lease_seconds=deployment.settings.lease_seconds)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._database.close()

    def of(self, worker):
        """The row of a process, or None."""
        rows = self._store.workers(all=True)
        return next((row for row in rows if row.pid == worker.process.pid), None)


def test_a_worker_is_seen_from_its_start_to_its_end(deployment, tiny_model, monkeypatch):
    monkeypatch.setitem(deployment.env, "PAGEMILL_LOG_FORMAT", "json")
    monkeypatch.setitem(deployment.env, "PAGEMILL_PROGRESS_SECONDS", "0.5")
    deployment.hold_leases(60)
    job = deployment.submit([*questions(40), {"prompt": "x" * 3000}], tiny_model)
    options = (*ENGINE, "--metrics-port", "0", "--concurrency", "2")
    with Rows(deployment) as rows, deployment.worker(tiny_model, *options) as worker:
        # torch alone takes longer to load than a row
        row = wait_for("its row", lambda: (r := rows.of(worker)) and r.status.message and r)
        assert row.status.state == "starting"
        assert re.match(STEP, row.status.message)
        assert row.alive
        url = url_of(worker)
        assert scrape(url)["pagemill_worker_state", "starting"] == 1
        wait_for("ready", lambda: rows.of(worker).status.state == "ready")
        assert rows.of(worker).status.message is None

        busy = wait_for(
            "work", lambda: (m := scrape(url))["pagemill_rows_total", "completed"] and m
        )
        assert busy["pagemill_requests_running",] > 0
        assert busy["pagemill_generated_tokens_total",] > 0
        assert busy["pagemill_tokens_per_second",] > 0
        assert busy["pagemill_chunks_held",] == 1
        assert busy["pagemill_lease_age_seconds",] > 0
        assert busy["pagemill_heartbeat_age_seconds",] < 60
        assert 0 < busy["pagemill_kv_blocks_used",] <= busy["pagemill_kv_blocks_capacity",] == 256
        assert get(url.replace("metrics", "healthz")) == (200, "ok\n")
        numbers = wait_for("numbers", lambda: (s := rows.of(worker).status).generated_tokens and s)
        assert numbers.blocks_total == 256

        deployment.cli("wait", job, expect=1)
        done = wait_for(
            "the last report", lambda: (m := scrape(url))["pagemill_requests_running",] == 0 and m
        )
        assert done["pagemill_rows_total", "completed"] == 40
        assert done["pagemill_rows_total", "failed"] == 1
        assert done["pagemill_chunks_total", "done"] == 1
        assert done["pagemill_generated_tokens_total",] == 40 * 60
        tokens = deployment.status(job)["tokens"]
        assert done["pagemill_cached_tokens_total",] == tokens["cached"]
        assert done["pagemill_step_duration_seconds_count",] >= 40 * 60 / 2
        assert done["pagemill_step_duration_seconds_sum",] > 0
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        last = rows.of(worker)
        assert (last.status.state, last.alive) == ("stopped", False)
        assert (last.status.rows_completed, last.status.rows_failed) == (40, 1)
        check_log(records(worker), job, last.id)


def check_log(lines, job, worker_id):
    """Every line parsed already; those about the chunk name it and its job."""
    assert {line["process"] for line in lines} == {"worker", "engine"}
    assert all(line["worker_id"] == worker_id for line in lines if line["process"] == "worker"), [
        line for line in lines if line["process"] == "worker" and "worker_id" not in line
    ]
    about = [line for line in lines if line["message"].startswith("chunk ")]
    assert [line["event"] for line in about] == ["chunk_leased", "chunk_done"]
    chunk = f"{job}-v1-000000"
    assert {(line["job_id"], line["chunk_id"], line["epoch"]) for line in about} == {
        (job, chunk, 1)
    }
    done = about[1]
    assert (done["rows"], done["errors"], done["completion_tokens"]) == (41, 1, 40 * 60)
    progress = [line for line in lines if line.get("event") == "progress"]
    assert progress
    assert all(line["job_ids"] == [job] for line in progress)
    assert any(0 < line["rows_done"] < line["rows_total"] for line in progress)
    events = [line["event"] for line in lines if "event" in line]
    for earlier, later in zip(
        order := ["metrics", "engine_ready", "ready", "chunk_leased", "chunk_done", "draining"],
        order[1:],
        strict=False,
    ):
        assert events.index(earlier) < events.index(later)
    # The page shows such a line.
    example = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])
    assert example.keys() == done.keys()


@ON_ONE
def test_a_hung_engine_costs_no_row(deployment, tiny_model, monkeypatch):
    monkeypatch.setitem(deployment.env, "PAGEMILL_ENGINE_TIMEOUT_SECONDS", "5")
    job = deployment.submit(questions(20, tokens=200), tiny_model)
    options = (*ENGINE, "--metrics-port", "0", "--log-format", "json", "--exit-when-done", job)
    with deployment.worker(tiny_model, *options) as worker:
        url = url_of(worker)
        before = wait_for("rows", lambda: (m := scrape(url))["pagemill_requests_running",] and m)
        worker.engine().suspend()
        wait_for("another engine", lambda: scrape(url)["pagemill_engine_restarts_total",] == 1)
        assert (
            scrape(url)["pagemill_generated_tokens_total",]
            >= before["pagemill_generated_tokens_total",]
        )
        assert worker.wait(120) == 0
        events = [r["event"] for r in records(worker) if "event" in r]
        assert events.index("engine_hung") < events.index("engine_died")
    found = deployment.results(job)
    assert [row["row_index"] for row in found] == list(range(20))
    assert all(row["completion_tokens"] == 200 for row in found)


@ON_ONE
def test_a_model_that_cannot_be_served_is_in_the_row_and_the_log(deployment, tmp_path, monkeypatch):
    monkeypatch.setitem(deployment.env, "PAGEMILL_LOG_FORMAT", "json")
    empty = tmp_path / "no-model"
    empty.mkdir()
    with Rows(deployment) as rows, deployment.worker(empty) as worker:
        assert worker.wait() == 3
        status = rows.of(worker).status
        assert status.state == "failed"
        assert str(empty) in status.message
        assert records(worker)[-1]["message"] == status.message
        assert records(worker)[-1]["level"] == "ERROR"


@ON_ONE
def test_a_signal_while_the_model_is_loaded_is_an_end_in_the_row_too(deployment, tiny_model):
    with Rows(deployment) as rows, deployment.worker(tiny_model, *ENGINE) as worker:
        wait_for("an engine that loads", lambda: rows.of(worker) and worker.engine())
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.logged()
        assert rows.of(worker).status.state == "stopped"
        assert "Traceback" not in worker.logged()


@ON_ONE
def test_a_port_that_is_taken_ends_the_worker_at_once(deployment, tiny_model):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with deployment.worker(tiny_model, "--metrics-port", str(port)) as worker:
            assert worker.wait() == 64
            assert f"metrics cannot be served on 127.0.0.1 port {port}" in worker.logged()
            assert "Traceback" not in worker.logged()
            with Rows(deployment) as rows:
                assert rows.of(worker) is None


@ON_ONE
def test_the_health_check_of_the_page(deployment, tiny_model):
    (url,) = re.findall(r"curl .*? http://127\.0\.0\.1:9400(\S+)", PAGE)
    with deployment.worker(tiny_model, *ENGINE, "--metrics-port", "0") as worker:
        found = wait_for("a port", lambda: re.search(r"http://127\.0\.0\.1:\d+", worker.logged()))
        assert get(found[0] + url) == (200, "ok\n")
        assert get(found[0] + "/elsewhere")[0] == 404
        worker.kill()
        with pytest.raises(OSError, match="refused"):
            get(found[0] + url)


@ON_ONE
@pytest.mark.parametrize("name", ["PAGEMILL_METRICS_PORT", "PAGEMILL_LOG_FORMAT"])
def test_a_setting_that_cannot_work_ends_a_worker_with_a_sentence(deployment, name):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "worker", "--model", "m"],
        env={**deployment.env, name: "nonsense"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 64
    assert name in done.stderr
    assert "Traceback" not in done.stderr


@ON_ONE
def test_a_crash_is_a_line_of_the_log_too(deployment, tiny_model):
    """A patch stands where the bug would be."""
    broken = deployment.home / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text(
        "import worker.main\n"
        "def crash(*args, **more): raise RuntimeError('out of luck')\n"
        "worker.main.Store = crash\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-m", "worker", "--model", str(tiny_model), "--log-format", "json"],
        env={**deployment.env, "PYTHONPATH": os.fspath(broken)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    *_, last = map(json.loads, done.stderr.splitlines())
    assert (last["level"], last["message"]) == ("CRITICAL", "RuntimeError: out of luck")
    assert last["exception"].startswith("Traceback")
