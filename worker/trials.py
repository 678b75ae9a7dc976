"""Which rows of a chunk may have killed workers, written down so that it outlives them.

A row that kills the engine and the worker at once (a host that is out of memory ends both) takes
with it what the worker knew. Then the lease runs out, the next worker claims the chunk, and dies.
So a worker that claims a chunk again keeps a record beside its spool.

A lease that ran out is no proof of a death: its worker may have been frozen, or its database
away. A worker that finds that it lost a lease says so in its record, and nobody is blamed before
there was time for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jobs.records import ChunkLease
from worker.suspects import DEATHS_ALONE
from worker.trial_records import Record, TrialRecords


@dataclass(frozen=True, slots=True)
class Plan:
    """How the rows of a chunk are run under a lease.

    Attributes:
        groups: rows that run together, in this order; all of them in one where there is no trial.
        accused: rows that are not run, since workers died while each was alone.
    """

    record: Record
    groups: tuple[tuple[int, ...], ...]
    accused: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of the accused rows when all others have run.

    Attributes:
        blamed: how many workers died while each was alone.
        cleared: rows that have to be tried again, since a worker lives that was thought dead.
    """

    blamed: Mapping[int, int] = field(default_factory=dict)
    cleared: tuple[int, ...] = ()


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
        alone[tried[0]] = (*alone.get(tried[0], ()), former.epoch)
        tried = []
    accused = tuple(row for row, epochs in alone.items() if len(epochs) >= DEATHS_ALONE)
    others = [row for row in todo if row not in alone and row not in tried]
    middle = (len(tried) + 1) // 2
    again = [[row] for row in alone if row not in accused]
    groups = [tuple(g) for g in (tried[:middle], tried[middle:], others, *again) if g]
    return Plan(replace(record, alone=alone), tuple(groups), accused)


class Trials:
    """Keeps the record of one lease. Threads may share it.

    Args:
        former: the record of the lease before (`TrialRecords.before`).
        todo: rows without an outcome.
        finished: how many have one.
        patience: seconds that the workers of former leases have, from now on, to say that they
            outlived them.
    """

    def __init__(
        self,
        records: TrialRecords,
        lease: ChunkLease,
        former: Record | None,
        todo: Sequence[int],
        finished: int,
        patience: float,
    ) -> None:
        self._records = records
        self._keeps = lease.epoch > 1
        self._lock = threading.Lock()
        self._over = False
        self._patient_until = time.monotonic() + patience
        made = plan(former, todo, finished)
        record = replace(made.record, epoch=lease.epoch, owner=lease.owner)
        self.plan = replace(made, record=record)
        self._write(record)

    @property
    def on_trial(self) -> bool:
        return self.plan.record.on_trial

    @property
    def patience(self) -> float:
        """Seconds until there may be a verdict."""
        return max(0.0, self._patient_until - time.monotonic())

    def begin(self, group: Sequence[int]) -> None:
        """From now on these rows are in the engine, and no others."""
        self._write(replace(self.plan.record, trying=tuple(group)))

    def end_group(self) -> None:
        """Whatever happens now, the rows of the last group have nothing to do with it."""
        self._write(self.plan.record)

    def end(self) -> None:
        """The lease was given up in order, or lost while its worker lives: that is no death."""
        if not self._records.stands(self.plan.record.epoch):
            with self._lock:
                self._over = True
            return
        self._write(replace(self.plan.record, ended=True), last=True)

    def verdict(self) -> Verdict:
        """Judge the accused rows.

        Raises:
            StorageUnavailable: the records cannot be read now.
        """
        alone = self._records.without_survivors(self.plan.record.alone)
        deaths = {row: len(alone.get(row, ())) for row in self.plan.accused}
        blamed = {row: number for row, number in deaths.items() if number >= DEATHS_ALONE}
        return Verdict(blamed, tuple(row for row in deaths if row not in blamed))

    def _write(self, record: Record, *, last: bool = False) -> None:
        if not self._keeps:
            return
        with self._lock:
            # The engine's turn may come to a group whose lease was just given up.
            if self._over:
                return
            self._over = last
            self._records.write(record)
