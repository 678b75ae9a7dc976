"""What a run is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.errors import EvaluationNotFound, UsageError
from jobs.evaluation.rules import Against
from jobs.records.evaluations import (
    ComparisonRecord,
    EvaluationRecord,
    EvaluationState,
    Role,
)
from jobs.report.provenance import Provenance
from jobs.report.rows import Changes, changes
from jobs.report.scores_file import scores_of
from jobs.report.settings import Setting, differences
from jobs.storage import Storage
from jobs.store import Store

_WORDS = {Role.BASELINE: "the baseline", Role.PREVIOUS: "the run before"}
_MISSING = {
    Role.BASELINE: "no run before it was blessed; `pagemill eval bless ID` makes one the baseline",
    Role.PREVIOUS: "no run of the series was completed before it",
}


@dataclass(frozen=True, slots=True)
class Chosen:
    """The run to compare with.

    Attributes:
        word: what it is, such as `the baseline`.
        note: why there is none.
    """

    run: EvaluationRecord | None
    word: str = ""
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """Differences to a run, by scorer."""

    word: str
    other_id: str
    comparisons: Mapping[str, ComparisonRecord]


@dataclass(frozen=True, slots=True)
class Other:
    """The run that rows, slices and settings are compared with.

    Attributes:
        rows: None where `rows_note` says why rows cannot be compared.
    """

    word: str
    run: Provenance
    rows: Changes | None
    rows_note: str | None
    settings: tuple[Setting, ...]


def other_run(
    store: Store,
    completed: EvaluationRecord,
    stored: Sequence[ComparisonRecord],
    against: str | None,
    gate: Against | None,
) -> Chosen:
    """The run that was asked for, or that the gate compares with, or whichever there is.

    Raises:
        EvaluationNotFound: there is none of that id.
        UsageError: it is the run itself, or was not completed.
    """
    if against is not None and against not in set(Role):
        return Chosen(_given(store, completed, against), "the run that was asked for")
    if against is not None:
        roles = [Role(against)]
    else:
        first = Role.PREVIOUS if gate is Against.PREVIOUS else Role.BASELINE
        roles = [first, *(role for role in Role if role is not first)]
    for role in roles:
        run = _of_role(store, completed, stored, role)
        if run is not None:
            return Chosen(run, _WORDS[role])
    return Chosen(None, note=_MISSING[roles[-1]])


def _given(store: Store, completed: EvaluationRecord, against: str) -> EvaluationRecord:
    found = store.evaluation(against)
    if found.id == completed.id:
        raise UsageError(f"--against {against} is the run itself; name another one")
    if found.state is not EvaluationState.COMPLETED:
        raise UsageError(
            f"--against {against}: evaluation {found.id} is {found.state}, and has no scores"
        )
    return found


def _of_role(
    store: Store,
    completed: EvaluationRecord,
    stored: Sequence[ComparisonRecord],
    role: Role,
) -> EvaluationRecord | None:
    """The run that it was compared with when it ended, which is what the gate spoke of."""
    for comparison in stored:
        if comparison.role is role:
            try:
                return store.evaluation(comparison.other_id)
            except EvaluationNotFound:  # it was removed since
                return None
    if role is Role.BASELINE:
        return store.baseline_of(completed.name, completed)
    return store.previous_of(completed.name, completed)


def columns(stored: Sequence[ComparisonRecord]) -> tuple[Column, ...]:
    """What SQL holds; one column where the baseline is the run before."""
    found: dict[str, list[ComparisonRecord]] = {}
    words: dict[str, list[str]] = {}
    for comparison in stored:
        word = _WORDS[comparison.role]
        known = words.setdefault(comparison.other_id, [])
        if word not in known:
            known.append(word)
        found.setdefault(comparison.other_id, []).append(comparison)
    return tuple(
        Column(" and ".join(words[id]), id, {c.scorer: c for c in found[id]}) for id in found
    )


def compared(
    now: Provenance,
    before: Provenance,
    word: str,
    storage: Storage,
    falling: Sequence[str],
    examples: int,
) -> Other:
    """Rows and settings of two runs."""
    ours, theirs = (scores_of(storage, run.evaluation) for run in (now, before))
    rows: Changes | None = None
    note: str | None = None
    if isinstance(ours, str):
        note = ours
    elif isinstance(theirs, str):
        note = theirs
    else:
        both = [name for name in ours.scorers if name in theirs.scorers]
        if both:
            rows = changes(theirs.path, ours.path, both, falling, examples)
        else:
            note = f"{before.evaluation.id} has no scorer in common with this run"
    return Other(word, before, rows, note, differences(before, now))
