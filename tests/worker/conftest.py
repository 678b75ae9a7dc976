from __future__ import annotations

import pytest

from jobs.records import ChunkLease
from tests.support.held_engine import Place


@pytest.fixture
def place(tmp_path, monkeypatch):
    made = Place(tmp_path, monkeypatch)
    yield made
    made.close()


@pytest.fixture
def lease() -> ChunkLease:
    return ChunkLease(
        chunk_id="job_x-v1-000000", job_id="job_x", version=1, ordinal=0, window=0, rows=3,
        epoch=2, owner="me", model="m", folder="job_x", input_path="_input/v1.parquet",
        options={"sampling": {"max_tokens": 9, "stop": ["###"]}}, seed=7, priority=1,
    )  # fmt: skip
