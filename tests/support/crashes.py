"""What the tests that kill processes have in common: a job, its answers in calm, its books."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from jobs.database import Database
from jobs.states import ChunkState
from jobs.store import Store
from tests.support.deployment import Deployment

ROWS = 400
ENGINE = ("--num-blocks", "96", "--max-model-len", "512", "--max-num-seqs", "8", "--threads", "1")

_COMPARED = ("custom_id", "text", "finish_reason", "prompt_tokens", "completion_tokens", "error")


def rows(number: int = ROWS) -> list[dict[str, Any]]:
    """Rows of two system prompts and mixed length; greedy, so that they can be compared."""
    return [
        {
            "custom_id": f"row-{i}",
            "messages": [
                {"role": "system", "content": ("Be brief. ", "Be kind, and exact. ")[i % 2] * 6},
                {"role": "user", "content": f"Question {i}: " + "why? " * (i % 7)},
            ],
            "max_tokens": 40 + i % 40,
            "ignore_eos": True,
        }
        for i in range(number)
    ]


def answers_in_calm(home: Path, model: Path) -> list[dict[str, Any]]:
    """The answers of one worker that nobody disturbs."""
    calm = Deployment(home)
    job = calm.submit(rows(), model, "--chunk-rows", "32")
    many = (*ENGINE, "--num-blocks", "1024", "--max-num-seqs", "64")  # which changes no answer
    with calm.worker(model, *many, "--exit-when-done", job) as worker:
        assert worker.wait(200) == 0, worker.logged()
    expected = calm.results(job)
    assert [row["row_index"] for row in expected] == list(range(ROWS))
    assert all(row["error"] is None for row in expected)
    return expected


def differences(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> dict[str, int]:
    """How many rows are lost, doubled and changed since the calm."""
    answers: dict[int, list[dict[str, Any]]] = {row["row_index"]: [] for row in expected}
    for row in found:
        answers.setdefault(row["row_index"], []).append({k: row[k] for k in _COMPARED})
    calm = {row["row_index"]: {k: row[k] for k in _COMPARED} for row in expected}
    return {
        "lost": sum(not rows for rows in answers.values()),
        "doubled": sum(len(rows) > 1 for rows in answers.values()),
        "changed": sum(row != calm.get(i) for i, rows in answers.items() for row in rows),
    }


def check_answers(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> None:
    """Each row is there once, in its place, and its answer is what it was in calm."""
    assert differences(expected, found) == {"lost": 0, "doubled": 0, "changed": 0}
    assert [row["row_index"] for row in found] == list(range(len(expected)))


def computing(store: Store, job: str) -> bool:
    """Whether some chunk that is leased has tokens that are not committed."""
    return any(
        c.state is ChunkState.RUNNING and c.counts.completion_tokens > 0 for c in store.chunks(job)
    )


def check_books(deployment: Deployment, job: str, number: int = ROWS) -> None:
    """SQL and files agree: one part a chunk, each row in one part, sums right."""
    database = Database(deployment.settings.database_url)
    try:
        store = Store(database)
        record = store.job(job)
        assert record.counts.completed == number
        assert record.counts.failed == record.counts.cancelled == record.counts.expired == 0
        assert record.chunks_left == 0
        chunks = store.chunks(job)
        assert all(c.state is ChunkState.DONE for c in chunks)
        assert sum(c.rows for c in chunks) == number
        assert len({c.part for c in chunks}) == len(chunks)
    finally:
        database.close()
    published = deployment.home / "storage" / record.folder / "v1"
    table = pq.read_table(published)
    assert sorted(table["row_index"].to_pylist()) == list(range(number))
    assert sum(table["completion_tokens"].to_pylist()) == record.counts.completion_tokens
