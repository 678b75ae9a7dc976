from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.crashes import answers_in_calm
from tests.support.deployment import BACKENDS, Deployment, deployed
from tests.support.tiny_model import build_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(scope="session")
def calm_answers(
    tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """What the rows of `tests.support.crashes` are answered when nothing is killed."""
    return answers_in_calm(tmp_path_factory.mktemp("calm"), tiny_model)


@pytest.fixture
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """Without a server, unless a test names its backends (`on_each_backend`)."""
    with deployed(tmp_path / "home", getattr(request, "param", BACKENDS[0])) as made:
        yield made
