"""What a report tells, gathered from SQL and from files of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import jobs
from jobs.errors import EvaluationNotFound, UsageError
from jobs.evaluation.rules import Bound, GateSpec
from jobs.records.evaluations import (
    EvaluationRecord,
    EvaluationState,
    ScoreRecord,
)
from jobs.report.other import Column, Other, compared, other_run, scores_of, stored_columns
from jobs.report.provenance import Provenance, provenance
from jobs.report.rows import Reason, reasons
from jobs.report.slices import SliceChange, sliced
from jobs.storage import Storage
from jobs.store import Store

_ID = "eval_"  # how ids begin


@dataclass(frozen=True, slots=True)
class Run:
    """A run in the course of a series.

    Attributes:
        scores: of all rows, by scorer.
        changed: what is not as in the last run before that has scores: `data`, `model`.
    """

    evaluation: EvaluationRecord
    scores: Mapping[str, ScoreRecord]
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Results:
    """What came out of a run.

    Attributes:
        scorers: names, in the order of the specification.
        scores: of all rows, by scorer.
        slices: by column, the largest change first.
        missing: why rows have no scores; empty where `file_note` says why nobody can tell.
        columns: what the scores are compared with.
        other: what rows, slices and settings are compared with; None where `other_note` says why.
    """

    run: Provenance
    scorers: tuple[str, ...]
    scores: Mapping[str, ScoreRecord]
    slices: Mapping[str, tuple[SliceChange, ...]]
    missing: tuple[Reason, ...]
    file_note: str | None
    columns: tuple[Column, ...]
    other: Other | None
    other_note: str | None


@dataclass(frozen=True, slots=True)
class Report:
    """All that the page shows.

    Attributes:
        newest: the run that the report is of; it may have failed.
        results: of that run, or of the last one before it that was completed; None without any.
        open: how many runs of the series have not ended.
        older: how many runs before those of `runs` there are.
        runs: the newest runs up to `newest`, the oldest first.
        falling: scorers of which the gate says that less is better.
        alpha: level of significance.
    """

    made_at: datetime
    software: str
    name: str
    newest: EvaluationRecord
    results: Results | None
    open: int
    older: int
    runs: tuple[Run, ...]
    falling: tuple[str, ...]
    alpha: float


def gather(
    store: Store,
    storage: Storage,
    asked: str | None,
    against: str | None,
    runs: int,
    examples: int,
) -> Report:
    """The report of a series, or of a run.

    Args:
        asked: name of a series, or the id of a run or its start; None for the newest of all.
        against: `baseline`, `previous`, or the id of another run; None for what the gate says.
        runs: how many runs the plots show.
        examples: most rows shown, of those that got worse and of those that got better.

    Raises:
        EvaluationNotFound: there is no such evaluation.
        UsageError: the run has not ended, or is to be compared with itself or with one that has
            no scores.
    """
    newest = _newest(store, asked)
    series = store.list_evaluations(newest.name, limit=None)
    before = series[[run.id for run in series].index(newest.id) :]
    ended = [run for run in before if run.state.terminal]
    completed = next((run for run in ended if run.state is EvaluationState.COMPLETED), None)
    gate = _gate(newest.spec)
    falling = _falling(gate)
    return Report(
        made_at=store.now(),
        software=jobs.__version__,
        name=newest.name,
        newest=newest,
        results=None
        if completed is None
        else _results(store, storage, completed, against, gate, falling, examples),
        open=len(series) - sum(run.state.terminal for run in series),
        older=len(ended[runs:]),
        runs=_course(store, ended[:runs]),
        falling=falling,
        alpha=gate.alpha,
    )


def _newest(store: Store, asked: str | None) -> EvaluationRecord:
    # A series may have a name that begins as ids do.
    if asked is not None and asked.startswith(_ID) and asked not in store.evaluation_names():
        found = store.evaluation(asked)
        if not found.state.terminal:
            raise UsageError(
                f"evaluation {found.id} is {found.state}; wait until it has ended "
                f"(`pagemill eval wait {found.id}`), or name its series, {found.name}"
            )
        return found
    ended = [state for state in EvaluationState if state.terminal]
    newest = store.list_evaluations(asked, ended, limit=1)
    if newest:
        return newest[0]
    if asked is None:
        raise EvaluationNotFound(
            "no evaluation has ended yet; `pagemill eval list` shows those there are"
        )
    names = store.evaluation_names()
    if asked in names:
        raise EvaluationNotFound(f"no evaluation of {asked} has ended yet; wait until one has")
    known = f"there are {', '.join(names[:10])}" if names else "there are none at all"
    raise EvaluationNotFound(f"there are no evaluations named {asked[:80]!r}; {known}")


def _results(
    store: Store,
    storage: Storage,
    completed: EvaluationRecord,
    against: str | None,
    gate: GateSpec,
    falling: tuple[str, ...],
    examples: int,
) -> Results:
    run = provenance(store, storage, completed)
    records = store.evaluation_scores(completed.id)
    scorers = _scorers(completed.spec, records)
    file = scores_of(storage, completed)
    stored = store.evaluation_comparisons(completed.id)
    chosen = other_run(store, completed, stored, against, gate.against)
    columns = stored_columns(stored)
    other, earlier = None, []
    if chosen.run is not None:
        known = any(column.other_id == chosen.run.id for column in columns)
        before = provenance(store, storage, chosen.run)
        earlier = store.evaluation_scores(chosen.run.id)
        other = compared(run, before, chosen.word, storage, falling, examples, known)
        if other.comparisons:
            columns = (*columns, Column(chosen.word, chosen.run.id, other.comparisons))
    return Results(
        run=run,
        scorers=scorers,
        scores={s.scorer: s for s in records if not s.slice_column},
        slices=sliced(records, earlier),
        missing=() if isinstance(file, str) else reasons(file),
        file_note=file if isinstance(file, str) else None,
        columns=columns,
        other=other,
        other_note=chosen.note,
    )


def _course(store: Store, newest_first: Sequence[EvaluationRecord]) -> tuple[Run, ...]:
    scores = store.overall_scores([run.id for run in newest_first])
    course: list[Run] = []
    last: EvaluationRecord | None = None
    for run in reversed(newest_first):
        changed: tuple[str, ...] = ()
        if run.state is EvaluationState.COMPLETED:
            changed = () if last is None else _changed(last, run)
            last = run
        course.append(Run(run, {s.scorer: s for s in scores.get(run.id, ())}, changed))
    return tuple(course)


def _changed(before: EvaluationRecord, now: EvaluationRecord) -> tuple[str, ...]:
    data = before.dataset_hash != now.dataset_hash
    model = before.spec.get("model") != now.spec.get("model")
    return (*(["data"] if data else []), *(["model"] if model else []))


def _scorers(spec: Mapping[str, Any], records: Sequence[ScoreRecord]) -> tuple[str, ...]:
    asked = [str(scorer["name"]) for scorer in spec.get("scorers", ())]
    found = {record.scorer for record in records}
    return (*(name for name in asked if name in found), *sorted(found - set(asked)))


def _gate(spec: Mapping[str, Any]) -> GateSpec:
    given = spec.get("gate")
    return GateSpec() if given is None else GateSpec.from_json(given)


def _falling(gate: GateSpec) -> tuple[str, ...]:
    """Scorers of which less is better: the gate limits how far they may rise."""
    names = [r.scorer for r in gate.rules if not isinstance(r, Bound) and r.direction > 0]
    return tuple(dict.fromkeys(names))
