"""Every error of `jobs`.

    JobsError                  `exit_code` is what the command line ends with
    ├── SettingsError          a setting or environment variable cannot work
    ├── UsageError             options that do not fit together
    ├── InputError             the input file as a whole is refused at submit
    │   └── InputChanged         … as it was written while it was read
    ├── StorageError           the storage folder cannot be read or written
    │   ├── StorageUnavailable   … and that may pass: it is full, read-only, or not there
    │   └── StorageUnusable      … and that will not: its URL names what no jobs are kept in
    ├── DatabaseError          the database is missing, locked, or of another version
    │   ├── DatabaseUnavailable  … and that may pass: it is away, or locked by others
    │   └── DatabaseUnusable     … and that will not: no driver, no such database, a wrong password
    ├── BrokerError            the broker cannot be reached, or refuses
    ├── KeyReused              an idempotency key is that of a job with other content
    ├── JobNotFound            no job of that id
    ├── EvaluationNotFound     no evaluation of that id
    ├── NotificationNotFound   no notification of that id
    ├── ScheduleNotFound       no schedule of that name
    ├── StateConflict          the job's state does not allow what was asked
    ├── OutputNotReady         results were asked for before there are any
    ├── WaitTimedOut           what was waited for had not ended when the time was over
    ├── WorkerFailed           the worker of a `run` or an `evaluate` left before the end
    ├── ModelUnusable          a model is not here, or cannot be served
    ├── HubUnavailable         the hub of models cannot be reached, or refuses
    ├── ChildFailed            a process that looks into models for us died
    ├── PackageMissing         a package that is not installed is needed
    ├── OutputError            finished rows do not add up: one is missing, twice there, or torn
    └── RowError               one row is refused: it becomes an error row (never the end of a job)

A message says what was wrong, where (file, line, row, field), and what to do.
"""

from __future__ import annotations


class JobsError(Exception):
    """Base of all errors that `jobs` raises on purpose."""

    exit_code = 1


class SettingsError(JobsError):
    """A setting or an environment variable cannot work."""

    exit_code = 64


class UsageError(JobsError):
    """Options that do not fit together."""

    exit_code = 64


class InputError(JobsError):
    """The input file is refused as a whole."""

    exit_code = 65


class InputChanged(InputError):
    """The input file was written while it was read."""


class Unusable(Exception):
    """Somebody has to act before it can work at all.

    Attributes:
        found: what is the case.
        cure: what to do.
    """

    def __init__(self, found: str, cure: str) -> None:
        super().__init__(f"{found}; {cure}")
        self.found = found
        self.cure = cure


class StorageError(JobsError):
    """The storage folder cannot be read or written."""

    exit_code = 74


class StorageUnavailable(StorageError):
    """The storage is full, refuses, or is not there; that may pass.

    Attributes:
        waits_for: what a job that needs the storage waits for, as `jobs.waiting_for` has it.
    """

    def __init__(self, message: str, waits_for: str) -> None:
        super().__init__(message)
        self.waits_for = waits_for


class StorageUnusable(Unusable, StorageError):
    """PAGEMILL_STORAGE_URL names what no jobs can be kept in."""


class DatabaseError(JobsError):
    """The database is missing, locked, or of another version."""

    exit_code = 69


class DatabaseUnavailable(DatabaseError):
    """The database cannot be reached, or stays locked; that may pass."""


class DatabaseUnusable(Unusable, DatabaseError):
    """Somebody has to act before there is a database at all."""


class BrokerError(JobsError):
    """The broker cannot be reached, or refuses; the job tables have all that matters."""

    exit_code = 69


class KeyReused(JobsError):
    """An idempotency key is that of a job with other content."""

    exit_code = 64


class JobNotFound(JobsError):
    """There is no job of that id."""

    exit_code = 66


class EvaluationNotFound(JobsError):
    """There is no evaluation of that id."""

    exit_code = 66


class NotificationNotFound(JobsError):
    """There is no notification of that id."""

    exit_code = 66


class ScheduleNotFound(JobsError):
    """There is no schedule of that name."""

    exit_code = 66


class StateConflict(JobsError):
    """The job's state does not allow what was asked."""

    exit_code = 75


class OutputNotReady(JobsError):
    """Results were asked for before there are any."""

    exit_code = 75


class WaitTimedOut(JobsError, TimeoutError):
    """A job or an evaluation had not ended when the time to wait was over; it goes on."""

    exit_code = 124


class WorkerFailed(JobsError):
    """The worker of a `run` or an `evaluate` left before the end."""


class ModelUnusable(JobsError):
    """A model is not here, or cannot be served."""

    exit_code = 3


class HubUnavailable(JobsError):
    """The hub of models cannot be reached, or refuses."""

    exit_code = 69


class ChildFailed(JobsError):
    """A process that looks into models for us died."""


class PackageMissing(JobsError, ImportError):
    """A package that is not installed is needed."""

    exit_code = 69


class OutputError(JobsError):
    """Finished rows do not add up to the job: one is missing, twice there, or unreadable.

    Trying again would not help: the files themselves are at fault.
    """

    exit_code = 70


class RowError(JobsError):
    """One input row is refused.

    Attributes:
        code: stable machine-readable name, such as ``invalid_json`` or ``unknown_field``.
        field: the field at fault (`messages[2].role`), where there is one.
    """

    def __init__(self, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.field = field
