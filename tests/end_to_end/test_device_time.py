"""How long the device of a real worker computed which job."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.deployment import Deployment, RunningWorker, wait_for
from tests.support.scraping import scrape, url_of

ENGINE = (
    "--num-blocks", "256", "--max-model-len", "256", "--threads", "1", "--max-num-seqs", "4",
    "--concurrency", "2", "--metrics-port", "0",
)  # fmt: skip


@pytest.fixture
def logging(deployment: Deployment) -> Deployment:
    deployment.env["PAGEMILL_LOG_FORMAT"] = "json"
    return deployment


def questions(count: int, tokens: int) -> list[dict[str, Any]]:
    return [
        {"prompt": f"Question {i}?", "max_tokens": tokens, "ignore_eos": True} for i in range(count)
    ]


def device(deployment: Deployment, job: str) -> float:
    seconds: float = deployment.status(job)["device"]["seconds"]
    return seconds


def busy(worker: RunningWorker) -> float:
    """Seconds that its engine computed, once it has nothing more to do."""
    url = url_of(worker)
    wait_for("its end", lambda: scrape(url)["pagemill_requests_running",] == 0)
    return scrape(url)["pagemill_device_seconds_total",]


def test_jobs_share_the_time_of_their_worker_by_their_tokens(
    logging: Deployment, tiny_model: Path
) -> None:
    short = logging.submit(questions(24, tokens=40), tiny_model)
    long = logging.submit(questions(24, tokens=120), tiny_model)
    logging.hold_leases(60)
    began = time.monotonic()
    with logging.worker(tiny_model, *ENGINE) as worker:
        for job in (short, long):
            logging.cli("wait", job)
        wall = time.monotonic() - began
        spent = [device(logging, job) for job in (short, long)]
        assert all(seconds > 0 for seconds in spent)
        assert sum(spent) <= wall
        assert sum(spent) == pytest.approx(busy(worker), abs=0.002)  # rounded to milliseconds
    status = logging.status(long)
    assert status["device"]["gpu_seconds"] == 0
    computed = status["tokens"]["prompt"] - status["tokens"]["cached"] + 24 * 120
    pace = status["device"]["tokens_per_hour"]
    assert pace == pytest.approx(computed * 3600 / spent[1], rel=0.01)
    manifest = json.loads((Path(status["output"]) / "_manifest.json").read_text())
    assert (manifest["device_seconds"], manifest["gpu_seconds"]) == (spent[1], 0)
    assert "tokens per device-hour" in logging.cli("status", long).stdout


def test_what_a_killed_worker_told_stays(logging: Deployment, tiny_model: Path) -> None:
    job = logging.submit(questions(40, tokens=100), tiny_model, "--chunk-rows", "40")
    with logging.worker(tiny_model, *ENGINE) as worker:
        wait_for("time that was told", lambda: device(logging, job) > 0)
        worker.signal(signal.SIGKILL)
        worker.wait()
        told = device(logging, job)
    assert told > 0
    # Where many tests run at once, the next lease must not run out: its time would be lost, too.
    logging.hold_leases(60)
    with logging.worker(tiny_model, *ENGINE) as worker:
        logging.cli("wait", job)
        assert device(logging, job) == pytest.approx(told + busy(worker), abs=0.002)
