"""Whose the time of the steps is: each step's is divided among the requests that it computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.batch import Batch
from engine.beam_group import OF_BEAM


class DeviceTime:
    """Divides the seconds of each step among its requests, by the tokens that it computed of each.

    Tokens that came from the prefix cache are not computed, so nobody pays for them; those that
    are computed once more after a preemption count again, as they take the device again. What is
    told adds up to the time of all steps.

    Overlapped, a step is given to the device while the one before it is waited for: the time until
    the next one is that of the step which was planned last.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}  # that were not told yet
        self._planned: dict[str, int] = {}  # tokens of each request
        self._begun = False

    def begin(self, batch: Batch) -> None:
        """The batch is computed next."""
        if not self._begun:
            self._planned, self._begun = {}, True
        for sequence in batch.sequences:
            owner = sequence.request_id.partition(OF_BEAM)[0]
            # A sample that forks computes nothing of its own, but is sampled.
            tokens = len(sequence.token_ids) or 1
            self._planned[owner] = self._planned.get(owner, 0) + tokens

    def add(self, seconds: float) -> None:
        """So long it took from one step to the next."""
        self._begun = False
        if not self._planned:
            return
        share = seconds / sum(self._planned.values())
        for owner, tokens in self._planned.items():
            self._seconds[owner] = self._seconds.get(owner, 0.0) + share * tokens

    def take(self, request_ids: Iterable[str]) -> Mapping[str, float]:
        """The seconds of some requests since they were told last."""
        return {i: self._seconds.pop(i) for i in request_ids if i in self._seconds}

    def take_all(self) -> Mapping[str, float]:
        """The seconds of all requests since they were told last, of those too that are gone."""
        taken, self._seconds = self._seconds, {}
        return taken
