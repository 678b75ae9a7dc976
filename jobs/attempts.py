"""One try of a merge or of a finalization: its lease is kept, and its failure has consequences.

Those of a chunk's failure in a worker are the same (`failed_for_good`).

OutputError             the files are at fault: the job is failed
the rest of JobsError,  what is around us is at fault, and that may pass: the job says what it
OSError, MemoryError    waits for, and is tried again
any other               nobody foresaw it: the same, but a few times only, then the job is failed
none, and no result     whoever tried it died or stood still: the same, but some times only, since a
                        step that ends every process that takes it would end the whole fleet
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

from jobs.errors import (
    DatabaseError,
    DatabaseUnavailable,
    JobsError,
    OutputError,
    StorageUnavailable,
)
from jobs.records import ChunkLease, MergeLease
from jobs.renewal import renewed
from jobs.storage import Storage
from jobs.store import Store

log = logging.getLogger("pagemill.finalize")

MOST_FAILURES = 5  # of one step of a version, whoever tried it
# Tries of one step that never ended. A process is also killed from outside, by whoever deploys
# another one say; but to be hit so often in one and the same step is no chance.
MOST_DEATHS = 10


def attempt(
    store: Store,
    storage: Storage,
    lease: MergeLease | None,
    step: Callable[[Store, Storage, MergeLease], bool],
) -> int:
    """Take a step under its lease; returns whether it was done here, as 0 or 1.

    Args:
        lease: None where others have it.
    """
    if lease is None:
        return 0
    with logged(lease.job_id, "not finished yet"):
        if lease.never_ended >= MOST_DEATHS:
            _fail_as_deadly(store, lease)
            return 0
        try:
            with _renewed(store, lease):
                return int(step(store, storage, lease))
        except OutputError as error:
            _fail(store, lease, "output_incomplete", str(error))
        except DatabaseUnavailable:
            _let_go(store, lease)
            raise
        except Exception as error:
            _let_go(store, lease)
            if failed_for_good(store, lease, error):
                return 0
            raise
    return 0


def failed_for_good(store: Store, lease: MergeLease | ChunkLease, error: Exception) -> bool:
    """Tell the job that a try failed: it waits for another one, unless there were too many.

    Returns whether the job has failed: nobody foresaw the error, and it came again and again.
    """
    if not _may_pass(error) and _failed_too_often(store, lease, error):
        return True
    _tell_wait(store, lease, error)
    return False


_KEPT = "What was answered is kept: `pagemill results {} --partial` reads it"


@contextlib.contextmanager
def logged(job_id: str, what: str) -> Iterator[None]:
    """One job that cannot be finished must not keep all others from it."""
    extra = {"event": "job_unfinished", "job_id": job_id}
    try:
        yield
    except JobsError as error:
        log.warning("job %s: %s, will be tried again: %s", job_id, what, error, extra=extra)
    except Exception:
        log.exception("job %s: %s, will be tried again", job_id, what, extra=extra)


def _renewed(store: Store, lease: MergeLease) -> contextlib.AbstractContextManager[None]:
    """Keep a lease during the block: a large window can take longer than one lasts."""

    def failed(error: JobsError) -> None:
        extra = {"event": "merge_not_renewed", "job_id": lease.job_id}
        log.warning("job %s: merge lease not renewed: %s", lease.job_id, error, extra=extra)

    return renewed(lambda: store.renew_merge(lease), store.lease_seconds, failed)


def _may_pass(error: Exception) -> bool:
    """Whether it is an error of what is around us, and not of the job or of pagemill."""
    if isinstance(error, OSError):
        return error.errno is not None  # else it is pyarrow's, about the content of a file
    return isinstance(error, (JobsError, MemoryError))


def _failed_too_often(store: Store, lease: MergeLease | ChunkLease, error: Exception) -> bool:
    """Count an error that nobody foresaw; fails the job if there were too many."""
    said = _in_words(error)
    times = store.count_failure(lease, said)
    if times < MOST_FAILURES:
        return False
    return _fail(
        store,
        lease,
        "internal_error",
        f"{lease.step} failed {times} times, the last time with {said}; the logs of workers and "
        f"beats have the traceback. {_KEPT.format(lease.job_id)}",
        error,
    )


def _fail_as_deadly(store: Store, lease: MergeLease) -> None:
    _fail(
        store,
        lease,
        "internal_error",
        f"{lease.step} was begun {lease.never_ended} times by processes that died in it, or stood "
        f"still for longer than their leases, the last time by {lease.former}; see whether they "
        f"lack memory. {_KEPT.format(lease.job_id)}",
    )


def _let_go(store: Store, lease: MergeLease) -> None:
    with contextlib.suppress(DatabaseError):
        store.let_go(lease)


def _tell_wait(store: Store, lease: MergeLease | ChunkLease, error: Exception) -> None:
    if isinstance(error, StorageUnavailable):
        what = error.waits_for
    else:
        what = f"another try, as {lease.step} failed: {_in_words(error)}"
    # What the database itself refuses is told by the log alone.
    with contextlib.suppress(DatabaseError):
        store.wait_for(lease.job_id, what)


def _fail(
    store: Store,
    lease: MergeLease | ChunkLease,
    code: str,
    message: str,
    traced: Exception | None = None,
) -> bool:
    """Fail the job, unless the lease was lost meanwhile: then others know better."""
    failed = store.fail_job(lease.job_id, code, message, lease)
    if failed:
        extra = {"event": "job_failed", "job_id": lease.job_id}
        log.error("job %s: %s", lease.job_id, message, extra=extra, exc_info=traced)
    return failed


def _in_words(error: Exception) -> str:
    said = str(error)
    return said if isinstance(error, JobsError) else f"{type(error).__name__}: {said}"
