from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.crashes import answers_in_calm
from tests.support.deployment import BACKENDS, Deployment, deployed
from tests.support.once import made_once
from tests.support.tiny_model import build_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(scope="session")
def calm_answers(
    tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """What the rows of `tests.support.crashes` are answered when nothing is killed."""

    def make(folder: Path) -> None:
        answers = answers_in_calm(folder / "home", tiny_model)
        (folder / "answers.json").write_text(json.dumps(answers))

    folder = made_once(tmp_path_factory, "calm", make)
    found: list[dict[str, Any]] = json.loads((folder / "answers.json").read_text())
    return found


@pytest.fixture
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """Without a server, unless a test names its backends (`on_each_backend`)."""
    with deployed(tmp_path / "home", getattr(request, "param", BACKENDS[0])) as made:
        yield made
