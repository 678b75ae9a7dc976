"""A real `submit` that stands still at a named call, as a machine that sleeps would.

    python -m tests.support.stopped_submit METHOD FILE

It stops itself (SIGSTOP) before the first call of the method, and goes on with SIGCONT.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.crash_points import ROOT


@contextmanager
def stopped_before(method: str, path: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A submit of a file that stands still there.

    Args:
        method: of `JobFolder`, `Store` or `NormalizedWriter`.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.stopped_submit", method, str(path)],
        cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), process.communicate()
        yield process
    finally:
        process.kill()
        process.communicate()


def go_on(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Let it end; returns its exit code, and what it said on stdout and stderr."""
    process.send_signal(signal.SIGCONT)
    out, said = process.communicate(timeout=120)
    return process.returncode, out, said


def main() -> None:
    from jobs.__main__ import main as pagemill
    from jobs.job_folder import JobFolder
    from jobs.normalize import NormalizedWriter
    from jobs.store import Store

    _, method, path = sys.argv
    owner: Any = next(o for o in (JobFolder, Store, NormalizedWriter) if hasattr(o, method))
    real = getattr(owner, method)

    def stopping(*arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGSTOP)
        return real(*arguments)

    setattr(owner, method, stopping)
    sys.argv = ["pagemill", "submit", path, "--model", "m"]
    pagemill()


if __name__ == "__main__":
    main()
