"""What a run is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jobs.errors import (
    EvaluationNotFound,
    OutputError,
    PackageMissing,
    StorageError,
    UsageError,
)
from jobs.evaluation.scorers.registry import SCORERS
from jobs.evaluation.scorers.translation import CorpusScorer
from jobs.evaluation.scores_file import ScoresFile
from jobs.evaluation.spec import EvaluationSpec
from jobs.records.evaluations import (
    ComparisonRecord,
    EvaluationRecord,
    EvaluationState,
    Role,
)
from jobs.report.provenance import Provenance
from jobs.report.rows import Changes, TwoRuns
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
        comparisons: by scorer, where SQL does not hold them.
    """

    word: str
    run: Provenance
    rows: Changes | None
    rows_note: str | None
    settings: tuple[Setting, ...]
    comparisons: Mapping[str, ComparisonRecord]


def other_run(
    store: Store,
    completed: EvaluationRecord,
    stored: Sequence[ComparisonRecord],
    against: str | None,
    gate: Role | None,
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
        first = Role.PREVIOUS if gate is Role.PREVIOUS else Role.BASELINE
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


def stored_columns(stored: Sequence[ComparisonRecord]) -> tuple[Column, ...]:
    """What SQL holds; one column where the baseline is the run before."""
    found: dict[str, list[ComparisonRecord]] = {}
    for comparison in stored:
        found.setdefault(comparison.other_id, []).append(comparison)
    return tuple(
        Column(
            " and ".join(_WORDS[role] for role in Role if any(c.role is role for c in of_it)),
            other_id,
            {c.scorer: c for c in of_it},
        )
        for other_id, of_it in found.items()
    )


def compared(
    now: Provenance,
    before: Provenance,
    word: str,
    storage: Storage,
    falling: Sequence[str],
    examples: int,
    known: bool,
) -> Other:
    """Rows and settings of two runs, and their scores.

    Args:
        known: whether SQL holds how their scores differ.
    """
    settings = differences(before, now)
    ours, theirs = (scores_of(storage, run.evaluation) for run in (now, before))
    if isinstance(ours, str) or isinstance(theirs, str):
        note = ours if isinstance(ours, str) else str(theirs)
        return Other(word, before, None, note, settings, {})
    both = [name for name in ours.scorers if name in theirs.scorers]
    if not both:
        note = f"{before.evaluation.id} has no scorer in common with this run"
        return Other(word, before, None, note, settings, {})
    runs = TwoRuns(theirs, ours, both)
    found = {} if known else _comparisons(runs, both, now.evaluation, before.evaluation)
    return Other(word, before, runs.changes(falling, examples), None, settings, found)


def _comparisons(
    runs: TwoRuns, both: Sequence[str], now: EvaluationRecord, before: EvaluationRecord
) -> dict[str, ComparisonRecord]:
    spec = EvaluationSpec.from_json(now.spec)
    found = {}
    for scorer in spec.scorers:
        if scorer.name not in both:
            continue
        corpus = None
        if SCORERS[scorer.scorer].corpus:
            try:
                corpus = scorer.make()
            except PackageMissing:  # a report can do without; `scores` says "not compared"
                continue
        assert corpus is None or isinstance(corpus, CorpusScorer)
        found[scorer.name] = runs.comparison(scorer.name, before.id, spec.seed, corpus)
    return found


def scores_of(storage: Storage, evaluation: EvaluationRecord) -> ScoresFile | str:
    """The scores of a run by row, or why there are none: a report is of use without, too."""
    if evaluation.scores_path is None:
        return f"{evaluation.id} has no file of scores"
    try:
        return ScoresFile(storage, evaluation.scores_path)
    except (StorageError, OutputError, ValueError) as error:
        return f"the scores of {evaluation.id} by row are gone or damaged: {error}"
