from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.deployment import BACKENDS, Deployment, deployed
from tests.support.tiny_model import build_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(params=BACKENDS)
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """Once on each backend, unless a test names those that it needs."""
    with deployed(tmp_path / "home", request.param) as made:
        yield made
