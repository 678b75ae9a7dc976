"""What the containers run, run here: from an empty database to the answers of a job."""

from __future__ import annotations

import json

from tests.support.containers import containers
from tests.support.deployment import wait_for
from tests.support.tiny_model import build_tiny_model


def test_a_deployment_answers_a_job_and_ends_in_time(tmp_path):
    with containers(tmp_path, PAGEMILL_MODEL="/models/tiny") as deployment:
        build_tiny_model(tmp_path / "models" / "tiny")
        deployment.up("worker", "beat")
        assert set(deployment.running) == {"redis", "migrate", "worker", "beat"}
        assert "is up to date" in deployment.log("migrate")

        rows = '{"prompt": "one", "max_tokens": 4}\n{"prompt": "two", "max_tokens": 4}\n'
        submit = ("submit", "-", "--format", "jsonl", "--model", "/models/tiny")
        job = deployment.run("cli", *submit, stdin=rows).strip()
        deployment.run("cli", "wait", job, "--timeout", "100")
        lines = deployment.run("cli", "results", job, "-o", "-").splitlines()
        answers = [json.loads(line) for line in lines]
        assert [(row["row_index"], row["error"]) for row in answers] == [(0, None), (1, None)]
        assert (tmp_path / "data" / "storage" / job / "v1" / "_SUCCESS").exists()

        for name in ("worker", "beat"):
            assert deployment.healthy(name)
            for line in deployment.log(name).splitlines():
                assert json.loads(line)["process"] in ("worker", "engine", "beat")
            assert deployment.stop(name) == 0, deployment.log(name)
        assert not deployment.healthy("worker")
        # The root of a container is read-only, and so is the home of its user.
        assert not (tmp_path / "home").exists()
        assert (tmp_path / "redis" / "appendonly.aof").stat().st_size > 0
        assert deployment.stop("redis") == 0


def test_messages_outlive_redis_and_a_job_ends_without_a_worker(tmp_path):
    with containers(tmp_path, PAGEMILL_MODEL="/models/none") as deployment:
        deployment.up("redis", "beat")
        submit = ("submit", "-", "--format", "jsonl", "--model", "/models/none")
        job = deployment.run("cli", *submit, stdin='{"prompt": "x"}\n').strip()
        assert deployment.redis("CONFIG", "GET", "appendonly").split() == ["appendonly", "yes"]
        kept = deployment.redis("DBSIZE")
        assert int(kept) > 0
        assert deployment.stop("redis") == 0
        deployment.up("redis")
        assert deployment.redis("DBSIZE") == kept

        deployment.run("cli", "cancel", job)
        wait_for(
            "the job's end",
            lambda: json.loads(deployment.run("cli", "status", job, "--json"))["finished_at"],
        )
        assert deployment.stop("beat") == 0
