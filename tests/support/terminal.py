"""A program on a real terminal, at which lines are typed."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

# Makes the terminal that is its stdin the one that controls its session, as a login does.
_LOGIN = (
    "import fcntl, os, sys, termios\n"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    "os.execvp(sys.argv[1], sys.argv[1:])\n"
)


class Terminal:
    """What a person at a terminal can do: type a line, and read what is written.

    The prompt has to be `PROMPT`.
    """

    PROMPT = "@@ "

    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self._process = process
        self._fd = fd
        self._shown = ""
        self._until(self._is_prompted)

    def type(self, line: str) -> str:
        """Type a line; what was written from then to the next prompt."""
        before = len(self._shown)
        os.write(self._fd, f"{line}\n".encode())
        self._until(lambda: "\n" in self._shown[before:] and self._is_prompted())
        return self._shown[before:].split("\n", 1)[1].removesuffix(self.PROMPT)

    def _is_prompted(self) -> bool:
        return self._shown.endswith(self.PROMPT)

    def _until(self, condition: object, timeout: float = 60) -> None:
        assert callable(condition)
        deadline = time.monotonic() + timeout
        while not condition():
            left = deadline - time.monotonic()
            assert left > 0, f"waited {timeout} s in vain; on the terminal is\n{self._shown}"
            if select.select([self._fd], [], [], left)[0]:
                try:
                    data = os.read(self._fd, 65536)
                except OSError:  # how Linux tells that nobody holds the other end
                    data = b""
                assert data, f"the program has ended; on the terminal is\n{self._shown}"
                self._shown += plain(data.decode(errors="replace"))


def plain(text: str) -> str:
    """Text without the sequences that move cursors and set colours, and without CR."""
    text = re.sub(
        r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[=>(][B0]?", "", text
    )
    return text.replace("\r", "")


@contextlib.contextmanager
def terminal(command: list[str], env: Mapping[str, str], cwd: Path) -> Iterator[Terminal]:
    """Start a program on a terminal of its own; it is hung up at the end."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _LOGIN, *command],
        stdin=theirs, stdout=theirs, stderr=theirs,
        env={**env, "TERM": "dumb", "COLUMNS": "200"}, cwd=cwd, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
