"""A handle of an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from jobs.api.choosing import chosen_states
from jobs.api.display import watching
from jobs.api.evaluation_status import EvaluationStatus, evaluation_status
from jobs.api.following import follow_to_end, waiting_for_jobs
from jobs.api.opening import opened
from jobs.errors import WaitTimedOut
from jobs.records.evaluations import ComparisonRecord, EvaluationState, ScoreRecord, Verdict
from jobs.settings import Settings

if TYPE_CHECKING:
    from jobs.api.scores import Scores
    from jobs.cli.deployment import Deployment


class Evaluation:
    """An evaluation, by its id: what it is like is asked anew by every call and every attribute.

    `evaluate` gives one, and so does `Evaluation.get` of one that was begun elsewhere. It can be
    kept, copied and shared by threads, and closing the notebook does nothing to the evaluation.

    Examples:
        >>> evaluation = Evaluation.get("eval_abcdefgh")
        >>> evaluation.verdict, evaluation.metrics["exact"].value
        (<Verdict.PASSED: 'passed'>, 0.875)
        >>> evaluation.scores().pandas()

    Attributes:
        id: the whole id, as the command line has it.
    """

    __slots__ = ("_settings", "id")

    def __init__(self, id: str, settings: Settings | None = None) -> None:
        self.id = id
        self._settings = settings or Settings.from_env()

    @classmethod
    def get(cls, id: str, *, settings: Settings | None = None) -> Evaluation:
        """The evaluation of an id, or of the start of one (9 characters at least).

        Args:
            settings: of the deployment that has it; of the environment if not given.

        Raises:
            EvaluationNotFound: there is no such evaluation, or several.
        """
        with opened(settings) as deployment:
            return cls(deployment.store.evaluation(id).id, deployment.settings)

    @classmethod
    def list(
        cls,
        name: str | None = None,
        state: EvaluationState | str | Iterable[EvaluationState | str] | None = None,
        limit: int = 50,
        *,
        settings: Settings | None = None,
    ) -> Sequence[Evaluation]:
        """Evaluations, newest first.

        Args:
            name: only those of this series.
            state: only those in this state, or in one of these.
            limit: the newest so many.

        Examples:
            >>> newest = Evaluation.list("nightly", limit=1)[0]
        """
        states = chosen_states(EvaluationState, state, limit)
        with opened(settings) as deployment:
            found = deployment.store.list_evaluations(name, states, limit=limit)
            return [cls(evaluation.id, deployment.settings) for evaluation in found]

    def __repr__(self) -> str:
        return f"Evaluation({self.id!r})"

    def __eq__(self, other: object) -> bool:
        ours = (self.id, self._settings)
        return isinstance(other, Evaluation) and ours == (other.id, other._settings)

    def __hash__(self) -> int:
        return hash(self.id)

    # ---- looking

    def status(self) -> EvaluationStatus:
        """Where it stands now, and all that came out."""
        with opened(self._settings) as deployment:
            return self._status(deployment)

    @property
    def state(self) -> EvaluationState:
        """Where it stands now."""
        return self.status().state

    @property
    def verdict(self) -> Verdict | None:
        """What its gate says; None until it has ended, or if it was skipped or cancelled."""
        return self.status().verdict

    @property
    def metrics(self) -> Mapping[str, ScoreRecord]:
        """What came out for all rows, by scorer."""
        return self.status().metrics

    @property
    def slices(self) -> Sequence[ScoreRecord]:
        """What came out for each value of the columns that it is sliced by."""
        return self.status().slices

    @property
    def comparisons(self) -> Sequence[ComparisonRecord]:
        """How each scorer differs from the baseline and from the evaluation before."""
        return self.status().comparisons

    def wait(self, timeout: float | None = None, progress: bool = True) -> EvaluationStatus:
        """Wait until it has ended, in whatever way; returns its last status.

        Its steps are taken here meanwhile, if nobody else takes them; its rows are answered by
        workers. An interrupt ends the waiting, not the evaluation.

        Args:
            timeout: seconds; None waits for as long as it takes.
            progress: show a bar on stderr, in a terminal or a notebook, and log a warning when
                there is no worker.

        Raises:
            WaitTimedOut: it has not ended within the timeout; it goes on.
        """
        with opened(self._settings) as deployment:
            whole = deployment.store.evaluation(self.id).id
            with watching(progress) as watcher:
                ended = follow_to_end(deployment, watcher, whole, progress, timeout)
            if ended is None:
                raise WaitTimedOut(
                    f"evaluation {whole} has not ended within {timeout:g} s; it goes on"
                )
            return evaluation_status(deployment, ended)

    def rescore(self, timeout: float | None = None, progress: bool = True) -> EvaluationStatus:
        """Score the answers that there are now once more: its job was retried, or a judge's.

        Args:
            timeout, progress: as of `wait`; jobs that are on their way are waited for.

        Raises:
            StateConflict: it has not ended, has no answers, or another process is at it.
            WaitTimedOut: its jobs have not ended within the timeout; they go on.
        """
        from jobs.evaluation.rescoring import rescored

        with opened(self._settings) as deployment:
            whole = deployment.store.evaluation(self.id).id
            with watching(progress) as watcher:
                wait = waiting_for_jobs(deployment, watcher, progress, timeout)
                found = rescored(deployment, whole, wait)
            if found is None:
                raise WaitTimedOut(
                    f"the jobs of evaluation {whole} have not ended within {timeout:g} s; they go "
                    "on"
                )
            return evaluation_status(deployment, found)

    def scores(self) -> Scores:
        """The score of each row, in the order of the data set.

        Raises:
            StateConflict: it has none, or none yet.
            OutputError: their file is missing or damaged.

        Examples:
            >>> evaluation.scores().polars(["prompt", "answer", "score.exact"])
        """
        from jobs.api.scores import Scores
        from jobs.cli.evaluating import completed

        with opened(self._settings) as deployment:
            return Scores(deployment.storage, completed(deployment, self.id))

    # ---- changing

    def bless(self, *, remove: bool = False) -> EvaluationStatus:
        """Make it the baseline that later ones of its series are compared with.

        Args:
            remove: take the blessing back.

        Raises:
            StateConflict: it is not completed.
        """
        with opened(self._settings) as deployment:
            deployment.store.bless(self.id, remove=remove)
            return self._status(deployment)

    def cancel(self) -> EvaluationStatus:
        """End it early, and the jobs that it still has. Asking twice does no harm.

        Raises:
            StateConflict: it has ended in another way.
        """
        from jobs.cli.evaluating import cancel

        with opened(self._settings) as deployment:
            cancel(deployment, deployment.store.evaluation(self.id).id)
            return self._status(deployment)

    def delete(self) -> None:
        """Remove it with its scores, for good; its jobs are kept.

        Raises:
            StateConflict: it has not ended; cancel it first.
        """
        from jobs.deletion import finish_deletions

        with opened(self._settings) as deployment:
            deployment.store.delete_evaluation(deployment.store.evaluation(self.id).id)
            finish_deletions(deployment.store, deployment.storage)

    def _status(self, deployment: Deployment) -> EvaluationStatus:
        return evaluation_status(deployment, deployment.store.evaluation(self.id))
