"""Evaluations, as a part of `Store`."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from jobs.database import Database
from jobs.records import JobRecord
from jobs.records.evaluations import (
    ComparisonRecord,
    EvaluationLease,
    EvaluationRecord,
    EvaluationResults,
    EvaluationState,
    ScoreRecord,
    Trigger,
)
from jobs.store import evaluation_rescoring, evaluation_results, evaluations, read
from jobs.store import evaluation_steps as steps


class Evaluating:
    """The methods of `Store` that insert, drive, show and remove evaluations.

    Every method that takes an id raises `EvaluationNotFound` if there is none of it.
    """

    _database: Database
    _lease_seconds: float

    # ---- looking

    def insert_evaluation(
        self, evaluation_id: str, *, name: str, spec: Mapping[str, Any], trigger: Trigger
    ) -> bool:
        """Insert an evaluation of no schedule; False if there is one of its id."""
        return self._database.transact(
            lambda c: evaluations.insert_evaluation(
                c, evaluation_id, name=name, spec=spec, trigger=trigger
            )
        )

    def evaluation(self, evaluation_id: str) -> EvaluationRecord:
        """The evaluation of that id, or of the only id that starts so (9 characters at least)."""
        with self._database.read() as connection:
            return evaluations.evaluation(connection, evaluation_id)

    def list_evaluations(
        self,
        name: str | None = None,
        states: Collection[EvaluationState] = (),
        *,
        schedule_id: str | None = None,
        limit: int | None = 50,
    ) -> list[EvaluationRecord]:
        """Evaluations, newest first; of a series, in one of the states, of a schedule."""
        with self._database.read() as connection:
            return evaluations.list_evaluations(connection, name, states, schedule_id, limit)

    def evaluation_names(self) -> list[str]:
        """The names of all series of evaluations."""
        with self._database.read() as connection:
            return evaluations.names(connection)

    def evaluation_scores(self, evaluation_id: str) -> list[ScoreRecord]:
        """What came out, by scorer, column and value of the slice."""
        with self._database.read() as connection:
            return evaluation_results.scores(connection, evaluation_id)

    def overall_scores(self, evaluation_ids: Sequence[str]) -> dict[str, list[ScoreRecord]]:
        """What came out of several evaluations for all their rows, by id."""
        with self._database.read() as connection:
            return evaluation_results.overall_scores(connection, evaluation_ids)

    def evaluation_comparisons(self, evaluation_id: str) -> list[ComparisonRecord]:
        """How it differed from the baseline and from the one before, by scorer."""
        with self._database.read() as connection:
            return evaluation_results.comparisons(connection, evaluation_id)

    def baseline_of(
        self, name: str, before: EvaluationRecord | None = None
    ) -> EvaluationRecord | None:
        """The evaluation of a series that was blessed last, among those before that one."""
        with self._database.read() as connection:
            return evaluations.baseline_of(connection, name, before)

    def previous_of(
        self, name: str, before: EvaluationRecord | None = None
    ) -> EvaluationRecord | None:
        """The last completed evaluation of a series, among those before that one."""
        with self._database.read() as connection:
            return evaluations.previous_of(connection, name, before)

    # ---- what people do to one

    def bless(self, evaluation_id: str, *, remove: bool = False) -> EvaluationRecord:
        """Make a completed evaluation the baseline of its series, or take that back.

        Raises:
            StateConflict: it is not completed.
        """
        return self._database.transact(lambda c: evaluations.bless(c, evaluation_id, remove))

    def cancel_evaluation(self, evaluation_id: str) -> EvaluationRecord:
        """End an evaluation where it stands; `jobs.evaluation.ending` cancels its jobs.

        Raises:
            StateConflict: it has ended in another way.
        """
        return self._database.transact(lambda c: steps.cancel(c, evaluation_id))

    def delete_evaluation(self, evaluation_id: str, ended_for: float | None = None) -> bool:
        """Forget an evaluation that has ended; `deletions` tells what files have to go.

        Args:
            ended_for: only if it ended at least so many seconds ago, and is no baseline; False if
                that is not so.

        Raises:
            StateConflict: it has not ended.
        """
        attempt = itertools.count()
        return self._database.transact(
            lambda c: evaluations.delete_evaluation(c, evaluation_id, ended_for, next(attempt) > 0)
        )

    def evaluations_that_ended(self, seconds: float) -> list[EvaluationRecord]:
        """Evaluations that ended at least so many seconds ago, but no baselines; oldest first."""
        with self._database.read() as connection:
            return evaluations.evaluations_that_ended(connection, seconds)

    # ---- steps

    def evaluations_due(self, only: str | None = None) -> list[str]:
        """Ids of evaluations whose next step may be taken, and that nobody is at.

        Args:
            only: look at this one alone; unless a try failed, do not wait for its time to come.
        """
        with self._database.read() as connection:
            return steps.due(connection, only)

    def evaluation_waited_for(self, evaluation_id: str) -> str | None:
        """The earliest evaluation of its schedule that has to end before it begins, if any."""
        with self._database.read() as connection:
            return steps.waited_for(connection, evaluation_id)

    def claim_evaluation(
        self, evaluation_id: str, owner: str, *, at_once: bool = False
    ) -> EvaluationLease | None:
        """Lease an evaluation for its next step; None if that is not due, or others have it."""
        return self._database.transact(
            lambda c: steps.claim(c, evaluation_id, owner, self._lease_seconds, at_once)
        )

    def renew_evaluation(self, lease: EvaluationLease) -> bool:
        """Prolong a lease; False if it was lost before."""
        return self._database.transact(lambda c: steps.renew(c, lease, self._lease_seconds))

    def note_dataset(self, lease: EvaluationLease, digest: str, rows: int) -> bool:
        """Write down which rows are about to be submitted; False if the lease was lost."""
        return self._database.transact(lambda c: steps.note_dataset(c, lease, digest, rows))

    def leave_evaluation(self, lease: EvaluationLease, seconds: float) -> bool:
        """Nothing is to be done yet; nobody need look for so many seconds."""
        return self._database.transact(lambda c: steps.let_go(c, lease, seconds))

    def retry_evaluation_later(
        self, lease: EvaluationLease, message: str, seconds: float, *, counts: bool
    ) -> bool:
        """A step was tried in vain.

        Args:
            counts: whether that is one of the attempts of which there are only so many.
        """
        return self._database.transact(
            lambda c: steps.retry_later(c, lease, message, seconds, counts)
        )

    def move_evaluation(
        self, lease: EvaluationLease, target: EvaluationState, **values: Any
    ) -> bool:
        """A step is done; False if the lease was lost before, or the evaluation was cancelled."""
        return self._database.transact(lambda c: steps.move(c, lease, target, values))

    def finish_evaluation(self, lease: EvaluationLease, results: EvaluationResults) -> bool:
        """Complete an evaluation, with all that came out; False if the lease was lost before."""
        return self._database.transact(lambda c: steps.finish(c, lease, results))

    def claim_ended_evaluation(self, evaluation_id: str, owner: str) -> EvaluationLease | None:
        """Lease an evaluation that has ended, to score it once more; None if others have it."""
        return self._database.transact(
            lambda c: evaluation_rescoring.claim_ended(c, evaluation_id, owner, self._lease_seconds)
        )

    def replace_evaluation_results(
        self, lease: EvaluationLease, results: EvaluationResults
    ) -> bool:
        """Put all that came out anew in the place of what was; False if the lease was lost."""
        return self._database.transact(
            lambda c: evaluation_rescoring.replace_results(c, lease, results)
        )

    def fail_evaluation(self, lease: EvaluationLease, code: str, message: str) -> bool:
        """End an evaluation that cannot be done; False if the lease was lost before."""
        return self._database.transact(lambda c: steps.fail(c, lease, code, message))

    def job_of_key(self, idempotency_key: str) -> JobRecord | None:
        """The job of an idempotency key."""
        with self._database.read() as connection:
            return read.job_of_key(connection, idempotency_key)
