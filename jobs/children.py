"""Processes of `worker` that do for a command what this process may not import.

The request goes to one as a line of JSON on its stdin, and what it tells comes as lines of JSON
from its stdout (`worker.telling`). It ends when its stdin does: it does not outlive us.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from typing import IO, Any

from jobs.errors import ChildFailed, HubUnavailable, JobsError, ModelUnusable, StorageError

CLOSING_SECONDS = 5.0
# What a process may call its errors.
_KINDS: dict[str, type[JobsError]] = {
    "model": ModelUnusable,
    "hub": HubUnavailable,
    "storage": StorageError,
}
_LAST_WORDS = 400  # characters


def program(module: str) -> list[str]:
    """The command line of a process of `worker`."""
    return [sys.executable, "-P", "-m", module]


def events_of(
    command: Sequence[str], request: Mapping[str, Any]
) -> Generator[tuple[str, dict[str, Any]]]:
    """What a process tells until it ends: the name of each event, and what belongs to it.

    The process is ended when the iterator is closed.

    Raises:
        JobsError: it ended with an error of its own.
        ChildFailed: it ended, or was killed, without a word.
    """
    with tempfile.TemporaryFile() as said:
        # A group of its own: a Ctrl-C reaches it through us, once.
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said,
            start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _send(process.stdin, request)
            for line in process.stdout:
                told = json.loads(line)
                name = told.pop("event")
                if name == "error":
                    raise _KINDS.get(told["kind"], JobsError)(told["message"])
                yield name, told
            if process.wait() != 0:
                said.seek(0)
                raise ChildFailed(_death(command, process.returncode, said.read()))
        finally:
            _end(process)


def _send(pipe: IO[bytes], request: Mapping[str, Any]) -> None:
    try:
        pipe.write(json.dumps(request).encode() + b"\n")
        pipe.flush()
    except BrokenPipeError:  # it could not even begin; how it ended says why
        return


def _death(command: Sequence[str], status: int, said: bytes) -> str:
    from jobs.scrubbing import Sieve
    from jobs.settings import urls_in_env

    words = Sieve(urls_in_env())(" ".join(said.decode(errors="replace").split()))
    token = os.environ.get("HF_TOKEN")
    if token:
        words = words.replace(token, "***")
    shown = words if len(words) <= _LAST_WORDS else f"…{words[-_LAST_WORDS:]}"
    how = f"was killed by signal {-status}" if status < 0 else f"ended with {status}"
    return f"`python {' '.join(command[1:])}` {how}: {shown or 'it said nothing'}"


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    for pipe in (process.stdin, process.stdout):
        try:
            pipe.close()
        except BrokenPipeError:  # what it did not read of its request
            continue
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(CLOSING_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
