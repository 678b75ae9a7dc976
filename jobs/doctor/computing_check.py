"""What computes: torch, triton, the kernels and the model's files, as a worker would find them.

This process never imports any of that: another one does, which may crash or hang in it.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence

from jobs.doctor.findings import Finding, Level, fault

SECONDS = 120.0  # the first import of torch from a slow disk takes most of it
ADVICE = "run `python -P -m worker.doctor` to see where it stops"
_LAST_WORDS = 300  # characters


def command(model: str | None) -> list[str]:
    """The process that looks; it prints a line of JSON for each finding."""
    named = [] if model is None else ["--model", model]
    return [sys.executable, "-P", "-m", "worker.doctor", *named]


def check_computing(
    model: str | None, program: Sequence[str] | None = None, seconds: float = SECONDS
) -> Iterator[Finding]:
    """What the other process finds.

    Args:
        program: to run in place of it.
    """
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            program or command(model), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said
        )
        atexit.register(process.kill)  # this thread is left behind by a command that is ended
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            with process:
                assert process.stdout is not None
                for line in process.stdout:
                    yield _finding(line)
        finally:
            timer.cancel()
            process.kill()
            atexit.unregister(process.kill)
        if late.is_set():
            yield fault("computing", f"torch or the model hung for {seconds:g} s", ADVICE)
        elif process.returncode != 0:
            said.seek(0)
            words = " ".join(said.read().decode(errors="replace").split())
            yield fault(
                "computing",
                f"the look at torch ended with {process.returncode}: …{words[-_LAST_WORDS:]}",
                "install pagemill and torch again in an environment of their own",
            )


def _finding(line: bytes) -> Finding:
    fields = json.loads(line)
    return Finding(fields["name"], Level(fields["level"]), fields["found"], fields["advice"])
