from __future__ import annotations

import pytest

from jobs.records import ChunkLease


@pytest.fixture
def lease() -> ChunkLease:
    return ChunkLease(
        chunk_id="job_x-v1-000000", job_id="job_x", version=1, ordinal=0, window=0, rows=3,
        epoch=2, owner="me", model="m", folder="job_x", input_path="_input/v1.parquet",
        options={"sampling": {"max_tokens": 9, "stop": ["###"]}}, seed=7, priority=1,
    )  # fmt: skip
