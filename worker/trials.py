"""Which rows of a chunk may have killed workers, written down so that it outlives them.

A row that kills the engine and the worker at once (a host that is out of memory ends both) takes
with it what the worker knew. Then the lease runs out, the next worker claims the chunk, and dies.
So a worker that claims a chunk again keeps a record beside its spool.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from jobs import layout
from jobs.errors import StorageError
from jobs.job_folder import JobFolder
from jobs.records import ChunkLease
from worker.suspects import DEATHS_ALONE

log = logging.getLogger("pagemill.worker")

# Deaths in a row, over a chunk of which no further row was finished, before its rows are tried
# apart. The death over the first lease is not counted: that one keeps no record.
DEATHS_BEFORE_TRIALS = 2


@dataclass(frozen=True, slots=True)
class Record:
    """What a lease leaves behind.

    Attributes:
        deaths: leases in a row that ended with their worker and no further row finished.
        finished: rows that were finished when the lease was taken.
        trying: rows that are in the engine, with no others; empty before and after a trial.
        alone: how many workers died while a row was tried alone.
        ended: the lease was given up in order.
    """

    deaths: int = 0
    finished: int = 0
    trying: tuple[int, ...] = ()
    alone: Mapping[int, int] = field(default_factory=dict)
    ended: bool = False

    @property
    def on_trial(self) -> bool:
        """Whether the rows are tried in groups, apart from all others."""
        return self.deaths >= DEATHS_BEFORE_TRIALS


@dataclass(frozen=True, slots=True)
class Plan:
    """How the rows of a chunk are run under a lease.

    Attributes:
        groups: rows that run together, in this order; all of them in one where there is no trial.
        blamed: rows that are not run: how many workers died while each was alone.
    """

    record: Record
    groups: tuple[tuple[int, ...], ...]
    blamed: Mapping[int, int] = field(default_factory=dict)


def plan(former: Record | None, todo: Sequence[int], finished: int) -> Plan:
    """What to do after the lease before this one.

    As in `Suspects`, rows that were tried when the worker died are halved, until one kills alone;
    that one is tried again after all others.

    Args:
        former: its record, if it left one.
        todo: rows without an outcome.
        finished: how many have one.
    """
    deaths = 0 if former is None else former.deaths
    if former is not None and not former.on_trial and not former.ended:
        deaths = deaths + 1 if finished == former.finished else 0
    record = Record(deaths, finished)
    if former is None or not record.on_trial:
        return Plan(record, (tuple(todo),))
    suspects = frozenset(former.trying if former.on_trial else todo)
    tried = [row for row in todo if row in suspects]
    alone = {row: former.alone[row] for row in todo if row in former.alone}
    if len(tried) == 1 and former.on_trial:
        alone[tried[0]] = alone.get(tried[0], 0) + 1
        tried = []
    blamed = {row: n for row, n in alone.items() if n >= DEATHS_ALONE}
    others = [row for row in todo if row not in alone and row not in tried]
    middle = (len(tried) + 1) // 2
    again = [[row] for row in alone if row not in blamed]
    groups = [tuple(g) for g in (tried[:middle], tried[middle:], others, *again) if g]
    return Plan(replace(record, alone=alone), tuple(groups), blamed)


class Trials:
    """Keeps the record of one lease.

    Args:
        todo: rows without an outcome.
        finished: how many have one.
    """

    def __init__(
        self, folder: JobFolder, lease: ChunkLease, todo: Sequence[int], finished: int
    ) -> None:
        self._folder = folder
        self._lease = lease
        self._keeps = lease.epoch > 1
        self.plan = plan(self._read() if self._keeps else None, todo, finished)
        self._write(self.plan.record)

    @property
    def on_trial(self) -> bool:
        return self.plan.record.on_trial

    def begin(self, group: Sequence[int]) -> None:
        """From now on these rows are in the engine, and no others."""
        self._write(replace(self.plan.record, trying=tuple(group)))

    def end_group(self) -> None:
        """Whatever happens now, the rows of the last group have nothing to do with it."""
        self._write(self.plan.record)

    def end(self) -> None:
        """The lease is given up in order: its end counts against no row."""
        self._write(replace(self.plan.record, ended=True))

    def _read(self) -> Record | None:
        for epoch in range(self._lease.epoch - 1, 1, -1):
            path = layout.trials(self._lease.chunk_id, epoch)
            if self._folder.exists(path):
                return _decoded(self._folder.read(path), path)
        return None

    def _write(self, record: Record) -> None:
        """Without a record a row that kills is found later; that is no reason to stop here."""
        if not self._keeps:
            return
        path = layout.trials(self._lease.chunk_id, self._lease.epoch)
        try:
            with self._folder.create(path) as file:
                file.write(json.dumps(asdict(record)).encode())
        except StorageError as error:
            log.warning("%s", error, extra={"event": "trial_not_recorded"})


def _decoded(data: bytes, path: str) -> Record | None:
    try:
        body = json.loads(data)
        body["trying"] = tuple(body["trying"])
        body["alone"] = {int(row): n for row, n in body["alone"].items()}
        return Record(**body)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning(
            "%s cannot be read (%s); it is as if there were none", path, error,
            extra={"event": "trial_not_recorded"},
        )  # fmt: skip
        return None
