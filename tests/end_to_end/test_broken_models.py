"""A model that is missing or broken on a worker: others answer, or the job says why not."""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path

import pytest

from jobs.database import Database
from jobs.records import WorkerRecord
from jobs.store import Store
from tests.support.deployment import Deployment, RunningWorker, wait_for

NAME = "acme/tiny"
REVISION = "0123456789abcdef0123456789abcdef01234567"
ENGINE = ("--num-blocks", "64", "--max-model-len", "256", "--threads", "1")
CANNOT_SERVE = 3  # exit code


def hub_cache(home: Path, model: Path) -> Path:
    """A cache of the model hub that has the model, as a download leaves it."""
    repository = home / "hub" / f"models--{NAME.replace('/', '--')}"
    shutil.copytree(model, repository / "snapshots" / REVISION)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(REVISION)
    return home


def broken_caches(home: Path, model: Path) -> dict[str, Path]:
    """Homes of workers that cannot serve the model, by what they say of it."""
    cut = hub_cache(home / "cut", model)
    (weights,) = cut.rglob("model.safetensors")
    weights.write_bytes(weights.read_bytes()[:-5000])
    spoilt = hub_cache(home / "spoilt", model)
    (tokenizer,) = spoilt.rglob("tokenizer.json")
    tokenizer.write_text("{")
    return {"model.safetensors": cut, "tokenizer": spoilt, "is not in the hub's": home / "absent"}


def rows_of_workers(deployment: Deployment) -> dict[int, WorkerRecord]:
    """The table of workers, by process id."""
    database = Database(deployment.settings.database_url)
    try:
        return {worker.pid: worker for worker in Store(database).workers(all=True)}
    finally:
        database.close()


def test_whoever_cannot_serve_a_model_says_so_and_leaves_its_jobs_to_others(
    deployment: Deployment, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [{"prompt": f"Question {i}?", "max_tokens": 5} for i in range(30)]
    job = deployment.submit(prompts, Path(NAME), "--chunk-rows", "5")
    with contextlib.ExitStack() as stack:

        def start(home: Path, *options: str) -> RunningWorker:
            monkeypatch.setitem(deployment.env, "HF_HOME", str(home))
            return stack.enter_context(deployment.worker(Path(NAME), *ENGINE, *options))

        broken = {
            says: start(home)
            for says, home in broken_caches(tmp_path / "homes", tiny_model).items()
        }
        for says, worker in broken.items():
            assert worker.wait(120) == CANNOT_SERVE, worker.logged()
            assert "Traceback" not in worker.logged()
            row = rows_of_workers(deployment)[worker.process.pid]
            assert (row.status.state, row.status.chunks_held, row.alive) == ("failed", 0, False)
            assert says in (row.status.message or "")

        shown = deployment.cli("status", job).stdout
        found = re.search(
            rf"no worker of {NAME} is alive; the last one failed at \S+ \S+ UTC: (.*); start", shown
        )
        assert found is not None, shown
        assert any(says in found[1] for says in broken)
        assert deployment.status(job)["waiting_for"].startswith(f"a worker of {NAME}; the last one")

        sound = start(hub_cache(tmp_path / "sound", tiny_model), "--exit-when-done", job)
        wait_for(
            "a row of the sound one", lambda: rows_of_workers(deployment).get(sound.process.pid)
        )
        late = start(tmp_path / "homes" / "cut")
        assert sound.wait(120) == 0, sound.logged()
        assert late.wait(120) == CANNOT_SERVE, late.logged()
    assert deployment.status(job)["waiting_for"] is None
    answers = deployment.results(job)
    assert [row["row_index"] for row in answers] == list(range(30))
    assert all(row["error"] is None for row in answers)
