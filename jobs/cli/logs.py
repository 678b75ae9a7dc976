"""`pagemill logs`."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs import layout
from jobs.cli.console import detached, note, say
from jobs.cli.deployment import Deployment, opened
from jobs.cli.log_lines import LogLine, read_log_line
from jobs.cli.options import JobId, Json
from jobs.cli.watching import Watched
from jobs.ctrl_c import INTERRUPTED
from jobs.errors import OutputNotReady
from jobs.storage_errors import trouble

if TYPE_CHECKING:
    from jobs.records import JobRecord

POLL_SECONDS = 0.5


def logs(
    job_id: JobId,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on with what is logged until the job has ended."),
    ] = False,
    lines: Annotated[
        int | None,
        typer.Option(
            "--lines",
            "-n",
            min=0,
            metavar="N",
            help="Begin with the last N lines; all, if not given.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the log of the worker of a `pagemill run`.

    A `pagemill worker` logs to its own standard error instead. Ctrl-C ends the following (130),
    not the job.

    \b
    Examples:
      pagemill logs job_abcdefgh --lines 50
      pagemill logs job_abcdefgh --follow
      pagemill logs job_abcdefgh --json | jq 'select(.level == "ERROR")'
    """
    with opened() as deployment:
        job = deployment.store.job(job_id)
        path = deployment.storage.root / layout.run_log(job.id)
        if not path.is_file() and (job.state.terminal or not follow):
            raise OutputNotReady(_none(job))
        log = LogFile(path, deployment.storage.root)
        try:
            if not path.is_file():
                note(f"there is no log of job {job.id} yet; only `pagemill run` writes one")
            _show(log.new() if lines is None else deque(log.new(), lines), as_json)
            if follow:
                _follow(deployment, job, log, as_json)
        except KeyboardInterrupt:
            if follow:
                json_too = " --json" if as_json else ""
                note(detached(f"job {job.id}", f"pagemill logs {job.id} --follow{json_too}"))
            raise typer.Exit(INTERRUPTED) from None


def _none(job: JobRecord) -> str:
    return (
        f"there is no log of job {job.id} in the storage: only `pagemill run` writes one, and a "
        "worker that was started otherwise logs to its own standard error (see docs/operations.md)"
    )


class LogFile:
    """A log that others write; it may not be there yet.

    Args:
        root: of the storage that it is in.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self._path = path
        self._root = root
        self._position = 0

    def new(self, rest: bool = False) -> Iterator[str]:
        """The whole lines that were written since.

        Args:
            rest: nobody writes any more: a line without its end is one, too.

        Raises:
            StorageUnavailable: it cannot be read.
        """
        try:
            with open(self._path, "rb") as file:
                file.seek(self._position)
                for line in file:
                    if not line.endswith(b"\n") and not rest:
                        return
                    self._position += len(line)
                    yield line.decode(errors="replace").rstrip("\r\n")
        except FileNotFoundError:
            return
        except OSError as error:
            raise trouble("read", self._path, self._root, self._root, error) from error


def _follow(deployment: Deployment, job: JobRecord, log: LogFile, as_json: bool) -> None:
    watched = Watched(deployment, job.id)
    while True:
        progress = watched.progress()
        # What was logged before the job had ended is there by now.
        has_ended = progress is not None and progress.job.state.terminal
        _show(log.new(rest=has_ended), as_json)
        if has_ended:
            return
        time.sleep(POLL_SECONDS)


def _show(lines: Iterable[str], as_json: bool) -> None:
    for line in lines:
        if not line.strip():
            continue
        read = read_log_line(line)
        if as_json:
            print(json.dumps(_as_json(line, read)))
        else:
            say(read.shown)
    sys.stdout.flush()


def _as_json(line: str, read: LogLine) -> dict[str, object]:
    """A line of JSON as it is; of text, what can be told of it."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if isinstance(fields, dict):
        return fields
    return {"level": read.level, "message": read.message, "line": line}
