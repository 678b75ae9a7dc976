"""What a lease leaves behind of the rows that it tried, beside the spool of its chunk."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from jobs import layout
from jobs.errors import OutputError, StorageError, StorageUnavailable
from jobs.job_folder import JobFolder
from jobs.records import ChunkLease

log = logging.getLogger("pagemill.worker")

# Deaths in a row, over a chunk of which no further row was finished, before its rows are tried
# apart. The death over the first lease is not counted: that one keeps no record.
DEATHS_BEFORE_TRIALS = 2


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of the rows of a chunk under a lease.

    Attributes:
        deaths: leases in a row that ended with their worker and no further row finished.
        finished: rows that were finished when the lease was taken.
        trying: rows that are in the engine, with no others; empty before and after a trial.
        alone: by row, the epochs of leases that ended while it was tried alone.
        ended: the lease was given up in order, or its worker outlived it.
        epoch, owner: of the lease.
    """

    deaths: int = 0
    finished: int = 0
    trying: tuple[int, ...] = ()
    alone: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    ended: bool = False
    epoch: int = 0
    owner: str = ""

    @property
    def on_trial(self) -> bool:
        """Whether the rows are tried in groups, apart from all others."""
        return self.deaths >= DEATHS_BEFORE_TRIALS


class TrialRecords:
    """The records of one chunk, by the epochs of its leases.

    What reads them raises `StorageUnavailable` where the storage does not let us.
    """

    def __init__(self, folder: JobFolder, chunk_id: str) -> None:
        self._folder = folder
        self._chunk_id = chunk_id

    def before(self, lease: ChunkLease) -> Record | None:
        """The record of the last lease that left one; the first lease never does."""
        for epoch in range(lease.epoch - 1, 1, -1):
            record = self.read(epoch)
            if record is None:
                continue
            alone = self.without_survivors(record.alone)
            if record.owner == lease.owner:  # that is us, so nobody died
                return replace(record, alone=alone, trying=(), ended=True)
            return replace(record, alone=alone)
        return None

    def without_survivors(self, alone: Mapping[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
        """Of `Record.alone`, the leases whose workers did not come back to say that they live."""
        found = {epoch: self.read(epoch) for epochs in alone.values() for epoch in epochs}
        left = {
            row: tuple(e for e in epochs if (record := found[e]) is None or not record.ended)
            for row, epochs in alone.items()
        }
        return {row: epochs for row, epochs in left.items() if epochs}

    def read(self, epoch: int) -> Record | None:
        """The record of a lease; None if it left none, or none that can be understood."""
        path = self._path(epoch)
        try:
            return _decoded(self._folder.read(path))
        except OutputError:
            return None
        except StorageUnavailable:
            raise
        except (StorageError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
            log.warning(
                "%s cannot be read (%s); it is as if there were none", path, e,
                extra={"event": "trial_not_recorded"},
            )  # fmt: skip
            return None

    def write(self, record: Record) -> None:
        """Without a record a row that kills is found later; that is no reason to stop here."""
        try:
            with self._folder.create(self._path(record.epoch)) as file:
                file.write(json.dumps(asdict(record)).encode())
        except (StorageError, OutputError) as error:
            log.warning("%s", error, extra={"event": "trial_not_recorded"})

    def stands(self, epoch: int) -> bool:
        """Whether a record is there; it goes with the spool, when its job has ended."""
        try:
            return self._folder.size(self._path(epoch)) > 0
        except (StorageError, OutputError):
            return False

    def _path(self, epoch: int) -> str:
        return layout.trials(self._chunk_id, epoch)


def _decoded(data: bytes) -> Record:
    body = json.loads(data)
    body["trying"] = tuple(body["trying"])
    body["alone"] = {int(row): tuple(map(int, epochs)) for row, epochs in body["alone"].items()}
    return Record(**body)
