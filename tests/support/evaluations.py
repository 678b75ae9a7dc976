"""Evaluations to put into a store."""

from __future__ import annotations

import itertools
from typing import Any

from jobs.records.evaluations import EvaluationLease, EvaluationRecord, Trigger
from jobs.store import Store
from jobs.store.evaluations import insert_evaluation

_numbers = itertools.count(1)

SPEC: dict[str, Any] = {"version": 1, "inputs": ["/rows.jsonl"], "model": "m"}


def add_evaluation(store: Store, name: str = "nightly", **values: Any) -> EvaluationRecord:
    """A new evaluation of a series."""
    id = values.pop("id", f"eval_{next(_numbers):020d}")
    values = {"trigger": Trigger.ONCE, "spec": SPEC, **values}
    with store._database.begin() as connection:
        assert insert_evaluation(connection, id, name=name, **values)
    return store.evaluation(id)


def claimed(store: Store, evaluation_id: str, owner: str = "d") -> EvaluationLease:
    """A lease of it, which has to be free."""
    lease = store.claim_evaluation(evaluation_id, owner, at_once=True)
    assert lease is not None
    return lease
