"""The process in which grammars are tried out, as the engine sees it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from multiprocessing.connection import Connection

from engine.grammar.limits import COMPILE_CPU_SECONDS, COMPILE_SECONDS
from engine.grammar.refusal import GrammarRefusal
from engine.grammar.spec import GrammarSpec


class TrialProcess:
    """Tries grammars, one after the other; a process that one of them ends is started again.

    When this object, or this whole process, goes, so does the other: its pipe closes.

    Args:
        command: the process to start; the numbers of its two pipes are added.
        seconds: longest time that a trial may take.
    """

    _COMMAND = (sys.executable, "-P", "-m", "engine.grammar.trial")

    def __init__(
        self, command: tuple[str, ...] = _COMMAND, seconds: float = COMPILE_SECONDS
    ) -> None:
        self._command = command
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, spec: GrammarSpec) -> str | GrammarRefusal:
        """The grammar as llguidance reads it, where it can be compiled."""
        if self._process is None:
            self._start()
        try:
            self._writer.send_bytes(json.dumps({"kind": spec.kind, "text": spec.text}).encode())
            if not self._reader.poll(self._seconds):
                self.close()
                return GrammarRefusal.too_large(f"it takes more than {self._seconds:g} s")
            answer = json.loads(self._reader.recv_bytes())
        except (EOFError, OSError):
            return _death(self.close())
        if "grammar" in answer:
            return str(answer["grammar"])
        return GrammarRefusal.by_library(answer["error"])

    def close(self) -> int:
        """End the process; returns its exit status (negative: a signal)."""
        if self._process is None:
            return 0
        self._process.kill()
        status = self._process.wait()
        self._reader.close()
        self._writer.close()
        self._process = None
        return status

    def _start(self) -> None:
        trial_in, self_out = os.pipe()
        self_in, trial_out = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*self._command, str(trial_in), str(trial_out)],
                pass_fds=(trial_in, trial_out),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # how a library says that it found no memory
            )
        finally:
            os.close(trial_in)
            os.close(trial_out)
        self._reader = Connection(self_in, writable=False)
        self._writer = Connection(self_out, readable=False)


def _death(status: int) -> GrammarRefusal:
    if status == -signal.SIGXCPU:
        return GrammarRefusal.too_large(f"it takes more than {COMPILE_CPU_SECONDS} s to compile")
    return GrammarRefusal.too_large("it takes more memory to compile than is allowed")
