"""Every block of docs/python.md is run as it stands there, one after the other, on a tiny model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import engine
import jobs
from tests.support.named_tests import page
from tests.support.tiny_model import build_tiny_model

PAGE = page("python.md")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MODEL = '"smollm2-135m"'


def test_every_block_is_python() -> None:
    assert re.findall(r"^```(\w+)$", PAGE, re.MULTILINE) == ["python"] * len(BLOCKS)


def test_the_page_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the model: what a large one says is tested with the README."""
    model = build_tiny_model(tmp_path / "tiny")
    for name in ("DATABASE_URL", "STORAGE_URL", "BROKER_URL"):
        monkeypatch.delenv(f"PAGEMILL_{name}", raising=False)
    monkeypatch.setenv("PAGEMILL_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    said: dict[str, Any] = {}
    for number, block in enumerate(BLOCKS, 1):
        code = block.replace(MODEL, repr(str(model)))
        exec(compile(code, f"<block {number} of docs/python.md>", "exec"), said)

    assert said["status"].rows.completed == said["status"].rows.total == 2
    assert said["frame"]["text"].tolist() == said["table"]["text"].to_pylist()
    assert all(said["frame"]["text"])
    assert said["facts"].status().rows.total == 1000
    assert said["queued"].status().state == "cancelled"
    assert (tmp_path / "answers.parquet").exists()
    assert said["first"]["input"] == {"place": "Bern"}
    assert said["output"].completion_tokens > 0
    with pytest.raises(jobs.JobNotFound):
        said["judged"].status()
    assert said["numeric"].rows + said["numeric"].missing == 12
    assert said["last"] == said["evaluation"]
    assert said["later"].state == "cancelled"
    assert len(said["scored"]) == 12
    assert said["patient"].engine_timeout_seconds == 900


def test_it_names_every_error_and_method() -> None:
    for name in jobs.__all__:
        if isinstance(kind := getattr(jobs, name), type) and issubclass(kind, jobs.JobsError):
            assert f"`{name}`" in PAGE, name
    for name in vars(jobs.Job):
        if not name.startswith("_") and name not in ("id", "get", "list"):
            assert f".{name}(" in PAGE, name
    for name in vars(jobs.Evaluation):
        if not name.startswith("_") and name != "id":
            assert f"`{name}`" in PAGE or f".{name}(" in PAGE, name
    assert issubclass(engine.RequestError, engine.EngineError)
    assert "`RequestError`" in PAGE
