"""From answers to scores: read row by row, written to a file, summed up, compared, judged."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from jobs.errors import OutputError
from jobs.evaluation.aggregate import Aggregator
from jobs.evaluation.answers import AnsweredRow, answered_rows
from jobs.evaluation.compare import compare, pair
from jobs.evaluation.gate import judge
from jobs.evaluation.judging import Verdicts, judges_of
from jobs.evaluation.rows import Score, ScoredRow
from jobs.evaluation.scorers.base import RowScorer, Scorer
from jobs.evaluation.scorers.translation import CorpusScorer
from jobs.evaluation.scores_file import ScoresFile, scores_path, writing
from jobs.evaluation.spec import EvaluationSpec
from jobs.records import JobRecord
from jobs.records.evaluations import (
    ComparisonRecord,
    EvaluationLease,
    EvaluationRecord,
    EvaluationResults,
    Role,
    ScoreRecord,
)
from jobs.storage import Storage
from jobs.store import Store
from jobs.store.evaluations import SCORES_FOLDER

log = logging.getLogger("pagemill.evaluation")

BATCH_ROWS = 1024

_LOST = (
    "the file of scores of the {} evaluation, {}, is gone or damaged: put it back, have it made "
    "again (`pagemill eval rescore`), or bless another"
)

_Score = Callable[[ScoredRow], Score]
Finish = Callable[[EvaluationLease, EvaluationResults], bool]


@dataclass(frozen=True, slots=True)
class Earlier:
    """An evaluation of the same series that one is compared with."""

    role: Role
    evaluation: EvaluationRecord


def score(
    store: Store,
    storage: Storage,
    lease: EvaluationLease,
    spec: EvaluationSpec,
    scorers: Mapping[str, Scorer],
    job: JobRecord,
    finish: Finish,
) -> bool:
    """Score the rows of a job that is completed, and complete the evaluation.

    Returns False where the lease was lost meanwhile: the file stays, and nobody names it.

    Args:
        finish: puts into SQL what came out, under the lease.

    Raises:
        OutputError: rows cannot be read.
        StorageError: a file cannot be read or written.
    """
    evaluation = lease.evaluation
    path = scores_path(evaluation.id, lease.epoch)
    records = write_scores(store, storage, evaluation, path, spec, scorers, job)
    comparisons: list[ComparisonRecord] = []
    before: Sequence[ScoreRecord] = ()
    lost = None
    against = None if spec.gate is None else spec.gate.against
    for earlier in earlier_ones(store, evaluation):
        found = _compared(storage, path, earlier, scorers, spec.seed)
        comparisons += found or []
        if earlier.role is against:
            before = store.evaluation_scores(earlier.evaluation.id)
            lost = _LOST.format(earlier.role, earlier.evaluation.id) if found is None else None
    judgement = judge(spec.gate, records, comparisons, before, lost)
    findings = [finding.to_json() for finding in judgement.findings]
    results = EvaluationResults(path, records, comparisons, judgement.verdict, findings)
    return finish(lease, results)


def write_scores(
    store: Store,
    storage: Storage,
    evaluation: EvaluationRecord,
    path: str,
    spec: EvaluationSpec,
    scorers: Mapping[str, Scorer],
    job: JobRecord,
) -> list[ScoreRecord]:
    """Write the score of each row to a file; returns them summed up."""
    by_name = _by_name(store, storage, evaluation, scorers)
    aggregator = Aggregator(scorers, spec.slices, spec.seed)
    folder = storage.new_job(SCORES_FOLDER, in_use=True)
    inner = path.removeprefix(f"{SCORES_FOLDER}/")
    with ExitStack() as used, writing(folder, inner, scorers, spec.slices) as writer:
        for scorer in scorers.values():
            used.callback(scorer.close)
        for rows in _batches(answered_rows(store, storage, job, spec.target)):
            scores = {name: [of(r.row) for r in rows] for name, of in by_name.items()}
            writer.add(rows, scores)
            aggregator.add([r.row for r in rows], scores)
    return aggregator.result()


def earlier_ones(store: Store, evaluation: EvaluationRecord) -> Iterator[Earlier]:
    """What an evaluation is compared with: the baseline, and the one before it."""
    asked = {Role.BASELINE: store.baseline_of, Role.PREVIOUS: store.previous_of}
    for role, ask in asked.items():
        found = ask(evaluation.name, evaluation)
        if found is not None:
            yield Earlier(role, found)


def compared(
    now: ScoresFile,
    then: ScoresFile,
    role: Role,
    other_id: str,
    scorers: Mapping[str, Scorer],
    seed: int,
) -> list[ComparisonRecord]:
    """The difference of two files of scores, for each scorer that both have."""
    pairing = pair(now.keys(), then.keys())
    records = []
    for name, scorer in scorers.items():
        if name not in now.scorers or name not in then.scorers:
            continue
        corpus = scorer if isinstance(scorer, CorpusScorer) else None
        sides = now.side(name), then.side(name)
        records.append(compare(name, role, other_id, pairing, *sides, seed, corpus))
    return records


def _compared(
    storage: Storage, path: str, earlier: Earlier, scorers: Mapping[str, Scorer], seed: int
) -> list[ComparisonRecord] | None:
    """The difference to an earlier evaluation; None where its file is gone or damaged.

    Raises:
        StorageError: the storage is away: it may be there again, and the file with it.
    """
    other = earlier.evaluation
    assert other.scores_path is not None
    now = ScoresFile(storage, path)
    try:
        then = ScoresFile(storage, other.scores_path)
        return compared(now, then, earlier.role, other.id, scorers, seed)
    except OutputError as error:
        extra = {"event": "evaluation_not_compared", "evaluation_id": other.id}
        log.warning("evaluation %s cannot be compared with: %s", other.id, error, extra=extra)
        return None


def _by_name(
    store: Store, storage: Storage, evaluation: EvaluationRecord, scorers: Mapping[str, Scorer]
) -> dict[str, _Score]:
    """How each scorer scores a row."""
    by_name: dict[str, _Score] = {}
    judges = judges_of(scorers)
    for name, scorer in scorers.items():
        if name in judges:
            job_id = evaluation.judge_jobs.get(name)
            by_name[name] = Verdicts(store, storage, judges[name], job_id).of
        else:
            assert isinstance(scorer, RowScorer)
            by_name[name] = scorer.score
    return by_name


def _batches(rows: Iterator[AnsweredRow]) -> Iterator[list[AnsweredRow]]:
    while batch := list(itertools.islice(rows, BATCH_ROWS)):
        yield batch
