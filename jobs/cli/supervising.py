"""Keeping the worker of `pagemill run` alive until the job has ended."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

import typer

from jobs.cli.deployment import Deployment
from jobs.cli.progress import Display
from jobs.cli.watching import POLL_SECONDS, Watched
from jobs.cli.worker import worker_hint
from jobs.cli.worker_process import WorkerProcess
from jobs.errors import DatabaseUnavailable
from jobs.leaving import hang_up
from jobs.states import JobState
from jobs.workers import worker_id_prefix

if TYPE_CHECKING:
    from jobs.records import JobRecord

MODEL_UNAVAILABLE = 3  # how a worker ends that cannot serve its model


class WorkerLeft(typer.Exit):
    """The worker is gone, and the job has not ended.

    Attributes:
        reason: what it said last; None if it was told to leave.
    """

    def __init__(self, code: int, reason: str | None) -> None:
        super().__init__(code)
        self.reason = reason


class Interruptions:
    """Counts Ctrl-C, SIGTERM and SIGHUP while it is entered; the rest of us goes on."""

    def __init__(self) -> None:
        self.count = 0
        self.exit_code = 0

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # signals are not for us
            return
        numbers = (signal.SIGINT, signal.SIGTERM, *hang_up())
        before = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.exit_code = 128 + number


class Supervisor:
    """Runs a worker for one job.

    A worker that a signal ended (it was killed, it ran out of memory) is started again; one
    that ended by itself with an error would only do so again.
    """

    def __init__(
        self,
        deployment: Deployment,
        job: JobRecord,
        worker: WorkerProcess,
        display: Display,
        interruptions: Interruptions,
    ) -> None:
        self._deployment = deployment
        self._tell = deployment.tell
        self._job = job
        self._worker = worker
        self._display = display
        self._interruptions = interruptions
        self._forwarded = 0
        self._rows_at_start = 0

    def run(self) -> JobRecord:
        """Watch until the job has ended; returns it.

        Raises:
            WorkerLeft: the worker left, or was told to leave, before the end of the job.
        """
        watched = Watched(self._deployment, self._job.id)
        while True:
            # First the process, then the job: a worker ends after the last thing it did.
            code = self._worker.returncode
            progress = watched.progress()
            if progress is not None:
                self._display(progress)
                if progress.job.state.terminal:
                    return progress.job
            self._forward_signal()
            if code is not None and progress is not None:
                self._after_end(code, progress.job, progress.counts.rows)
            time.sleep(POLL_SECONDS)

    def _forward_signal(self) -> None:
        """Pass one of our signals on; two at once would reach the worker as one."""
        if self._forwarded == self._interruptions.count:
            return
        self._forwarded += 1
        if self._forwarded == 1:
            self._tell(
                "Leaving: the chunks that are being worked on are finished first; "
                "once more hands them back at once"
            )
            self._worker.terminate()
        elif self._forwarded == 2:
            self._tell("Handing the chunks back; what is finished of them is kept")
            self._worker.terminate()
        else:
            self._worker.kill()

    def _after_end(self, code: int, job: JobRecord, rows: int) -> None:
        """The worker has ended and the job has not."""
        if self._interruptions.count:
            self._say_how_to_resume()
            raise WorkerLeft(self._interruptions.exit_code, None)
        if code < 0:
            name = signal.Signals(-code).name
            with contextlib.suppress(DatabaseUnavailable):  # then its leases have to run out
                self._deployment.store.requeue_owned(worker_id_prefix(self._worker.pid))
            if self._worker.start_again(rows > self._rows_at_start):
                self._tell(
                    f"The worker was ended by {name} and is started again; no finished row is lost"
                )
                self._rows_at_start = rows
                return
            self._tell(f"The worker was ended by {name} again and again without finishing a row:")
        elif code:
            self._fail(code, job)
        else:
            self._tell("The worker has left:")
        self._tell(f"{self._worker.tail()}Its log is {self._worker.log}")
        self._say_how_to_resume()
        raise WorkerLeft(1, self._worker.complaint())

    def _fail(self, code: int, job: JobRecord) -> None:
        """The worker ended with an error; a job that nobody began is failed with its reason."""
        complaint = self._worker.complaint()
        self._tell(f"Error: {complaint}")
        if job.state is not JobState.QUEUED:
            return
        reason = "model_unavailable" if code == MODEL_UNAVAILABLE else "worker_failed"
        if self._deployment.store.fail_job(job.id, reason, complaint):
            self._tell(f"job {job.id} failed; the worker's log is {self._worker.log}")
            raise WorkerLeft(1, complaint)

    def _say_how_to_resume(self) -> None:
        job = self._job
        self._tell(
            f"job {job.id} is kept and goes on where it stands:\n"
            f"  {worker_hint(job)}\n"
            f"  pagemill wait {job.id}"
        )
