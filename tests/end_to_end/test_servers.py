"""A Redis that is not there at all; for servers that fail in the middle, see `test_kills`."""

from __future__ import annotations

import signal

from tests.support.crashes import ENGINE
from tests.support.deployment import Deployment
from tests.support.redis_server import free_port


def test_a_job_ends_though_redis_never_comes(tmp_path, tiny_model):
    deployment = Deployment(tmp_path, broker_url=f"redis://127.0.0.1:{free_port()}/0")
    job = deployment.submit(
        [{"prompt": "x", "max_tokens": 5}] * 60, tiny_model, "--chunk-rows", "8"
    )
    with deployment.worker(tiny_model, *ENGINE) as worker:
        deployment.cli("wait", job)
        assert "chunks are taken from the database" in worker.logged()
        worker.signal(signal.SIGTERM)
        assert worker.wait(60) == 0, worker.logged()
    assert len(deployment.results(job)) == 60
