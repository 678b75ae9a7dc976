"""Who may import whom, and what stays unloaded."""

import subprocess
import sys

import pytest

from tests.support.tiny_model import build_tiny_model

WORKER_PACKAGES = ("alembic", "celery", "jinja2", "pyarrow", "sqlalchemy", "tokenizers")
HEAVY = ("torch", "transformers", "triton", "engine", "kernels", "worker")


def loaded_after(code: str, *more: str) -> set[str]:
    """Which of the heavy packages, and of `more`, a fresh interpreter has loaded after the code."""
    names = (*HEAVY, *more)
    probe = f"{code}\nimport sys\nprint(*[m for m in {names!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_the_import_rules_hold():
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "module",
    ["jobs", "jobs.cli", "jobs.__main__", "jobs.submission", "jobs.finalize", "jobs.results",
     "jobs.retry", "jobs.store", "jobs.database", "jobs.wake", "jobs.beat"],
)  # fmt: skip
def test_jobs_loads_nothing_heavy(module):
    assert loaded_after(f"import {module}") == set()


def test_the_scheduler_needs_no_torch():
    assert "torch" not in loaded_after("import engine.scheduler, engine.messages, engine.process")


def test_the_worker_process_needs_no_torch():
    assert "torch" not in loaded_after("import worker.main")


def test_a_worker_starts_its_engine_before_it_loads_anything_heavy():
    code = "import worker.starting, worker.engine_process"
    assert loaded_after(code, *WORKER_PACKAGES) <= {"engine", "worker"}


def test_an_engine_loads_no_transformers_once_the_model_is_there(tmp_path):
    """Its import alone takes as long as all weights of a small model."""
    folder = build_tiny_model(tmp_path)
    code = (
        "from engine.config import EngineConfig\n"
        "from engine.core import Engine\n"
        f"Engine(EngineConfig(model={str(folder)!r}, num_blocks=16))"
    )
    assert loaded_after(code, "gguf", "huggingface_hub") == {"torch", "engine", "kernels"}


def test_the_version_is_one_and_not_that_of_the_other_kernels():
    from importlib.metadata import version

    import jobs

    assert version("pagemill") == jobs.__version__
    assert not jobs.__version__.startswith("0.18.")
