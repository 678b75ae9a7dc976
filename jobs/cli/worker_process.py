"""The worker process of `pagemill run`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from jobs.cli.log_lines import read_log_line

MAX_FRUITLESS_STARTS = 5
CLOSING_SECONDS = 5.0
# Either drains first and hands the chunks back when the other follows. Of one that comes twice, a
# process that is too busy to heed the first sees one only.
_LEAVE = (signal.SIGTERM, signal.SIGINT)
_LOG_TAIL = 12


class WorkerProcess:
    """A worker in a process group of its own, so that a Ctrl-C reaches it through us only.

    Args:
        log: where its output goes, appended.
    """

    def __init__(self, command: list[str], env: Mapping[str, str], log: Path) -> None:
        self.log = log
        self._command = command
        self._env = {**os.environ, **env}
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._told_to_leave = 0
        self._log_start = 0

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                self._command,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._starts += 1
        self._told_to_leave = 0

    @property
    def pid(self) -> int:
        """The process that was started last."""
        assert self._process is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative if a signal ended it."""
        return None if self._process is None else self._process.poll()

    def start_again(self, progressed: bool) -> bool:
        """Start again after a signal ended it; False after too many starts in vain."""
        if progressed:
            self._starts = 0
        if self._starts > MAX_FRUITLESS_STARTS:
            return False
        self.start()
        return True

    def terminate(self) -> None:
        """Tell it to leave: the first time it drains, the second it hands its chunks back."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(_LEAVE[self._told_to_leave % len(_LEAVE)])
            self._told_to_leave += 1

    def kill(self) -> None:
        """End it without its help; what it spooled is kept."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def close(self) -> None:
        """See that it is gone: by itself, else by handing back what it has, else killed."""
        if self._process is None:
            return
        for step in (None, self.terminate, self.terminate, self.kill):
            if step is not None:
                step()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSING_SECONDS)
                return

    def complaint(self) -> str:
        """The last error that it logged since its last start, else its last line."""
        lines = [read_log_line(line) for line in self._lines()]
        errors = [line for line in lines if line.is_error]
        said = [line.message for line in errors or lines]
        return said[-1] if said else "it said nothing"

    def tail(self) -> str:
        """Its last lines, indented."""
        return "".join(f"  {read_log_line(line).shown}\n" for line in self._lines()[-_LOG_TAIL:])

    def _lines(self) -> list[str]:
        with open(self.log, "rb") as log:
            log.seek(self._log_start)
            text = log.read().decode(errors="replace")
        return [line for line in text.splitlines() if line.strip()]
