"""Evaluations whose jobs are answered by the test."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jobs import finalize
from jobs.database import Database
from jobs.evaluation import runs
from jobs.records import RowErrorInfo, RowResult
from jobs.records.evaluations import EvaluationRecord
from jobs.settings import Settings
from jobs.states import JobState
from jobs.storage import Storage
from jobs.store import Store
from tests.support.command_line import CommandLine
from tests.support.evaluations import add_evaluation
from tests.support.played_job import MODEL, PlayedJob

ROWS = [
    {"prompt": f"What is {n} + 1?", "target": str(n + 1), "topic": ("odd" if n % 2 else "even")}
    for n in range(40)
]


def right(row: int) -> str:
    """What should be said to a row of `ROWS`."""
    return str(row + 1)


def right_but(*wrong: int) -> Callable[[int], str]:
    """Answers of which some are wrong."""
    return lambda row: "wrong" if row in wrong else right(row)


@dataclass
class Answering(PlayedJob):
    """A job that is answered by a function of the row's number; None is an error row."""

    says: Callable[[int], str | None] = right

    def answer(self, row: int) -> RowResult:
        text = self.says(row)
        if text is None:
            error = RowErrorInfo("nan_logits", "no number", None, None)
            return RowResult(row, finish_reason="error", prompt_tokens=4, seed=row, error=error)
        return replace(super().answer(row), text=text)


@dataclass
class PlayedEvaluations:
    """A deployment whose workers are played.

    Attributes:
        rows: the file of rows.
    """

    store: Store
    storage: Storage
    settings: Settings
    rows: Path
    gate: Mapping[str, Any] | None = None
    scorers: Sequence[Mapping[str, Any]] = field(default_factory=lambda: [{"scorer": "exact"}])

    def write(self, rows: Sequence[Mapping[str, Any]] = ROWS) -> None:
        self.rows.write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def spec(self, **more: Any) -> dict[str, Any]:
        return {
            "version": 1,
            "inputs": [str(self.rows)],
            "model": MODEL,
            "scorers": list(self.scorers),
            "slices": ["topic"],
            "gate": self.gate,
            **more,
        }

    def add(self, name: str = "nightly", **more: Any) -> EvaluationRecord:
        """A new evaluation; `spec` is what its specification has besides."""
        more["spec"] = self.spec(**more.pop("spec", {}))
        return add_evaluation(self.store, name, **more)

    def drive(self, evaluation_id: str | None = None, owner: str = "d") -> int:
        return runs.drive(self.store, self.storage, self.settings, owner, evaluation_id)

    def answer(self, job_id: str | None, says: Callable[[int], str | None] = right) -> None:
        """Take a job to its end."""
        assert job_id is not None
        Answering(self.store, self.storage, job_id, says=says).finish_all()
        finalize.drive(self.store, self.storage, "f")

    def run(
        self, says: Callable[[int], str | None] = right, name: str = "nightly", **more: Any
    ) -> EvaluationRecord:
        """An evaluation from its beginning to its end."""
        found = self.add(name, **more)
        self.drive(found.id)
        self.answer(self.store.evaluation(found.id).job_id, says)
        while self.drive(found.id):
            pass
        return self.store.evaluation(found.id)


@contextmanager
def worker(cli: CommandLine, says: Callable[[int], str | None]) -> Iterator[None]:
    """A worker that answers what is queued, beside the test."""
    over = threading.Event()

    def work() -> None:
        database = Database(cli.settings.database_url)
        store, storage = Store(database), Storage(cli.settings.storage_url)
        while not over.is_set():
            for job in store.list_jobs([JobState.QUEUED, JobState.IN_PROGRESS]):
                Answering(store, storage, job.id, says=says).finish_all()
                finalize.drive(store, storage, "w")
            over.wait(0.02)
        database.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
