"""Somebody's function in a process of its own, which ends where a row takes too long.

A row goes to it as a line of JSON, and its score comes back as one. Values that JSON has no form
for go along as Arrow; nothing is pickled.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import fields
from typing import IO, Any

import pyarrow as pa

from jobs.errors import ChildFailed
from jobs.evaluation.rows import Score, ScoredRow, missing

MAX_LOST = 40  # rows in which the process ended, or was ended
START_SECONDS = 300.0  # that the package of the function may take to be imported
_ENDING_SECONDS = 1.0  # that a process may take to end which has closed its pipes
_READ = 1 << 16
_WRITE = select.PIPE_BUF


class Apart:
    """Calls a function there, and starts its process anew after a row that ended it.

    Args:
        function: the name of its entry point.
        seconds: that it may take for a row.
    """

    def __init__(self, function: str, arguments: Mapping[str, Any], seconds: float) -> None:
        self._function = function
        self._arguments = arguments
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._lost = 0

    def score(self, row: ScoredRow) -> Score:
        """The score of a row; it is missing if the function takes too long, or its process ends.

        Raises:
            ChildFailed: there is no such process.
        """
        if self._lost >= MAX_LOST:
            return missing(f"{self._function} lost {MAX_LOST} rows; it is given up")
        try:
            line = row_to_line(row)
        except (pa.ArrowException, TypeError, ValueError) as error:
            return missing(f"a process of its own cannot be given the row: {error}")
        process = self._running()
        try:
            told = json.loads(_asked(process, line, self._seconds))
        except TimeoutError:
            why = f"took over {self._seconds:g} seconds"
        except (OSError, ValueError):
            why = f"ended its process{_how(process)}"
        else:
            return Score(told["value"], told["note"])
        self.close()
        self._lost += 1
        return missing(f"{self._function} {why}")

    def close(self) -> None:
        """End the process, and all that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended
            os.killpg(process.pid, signal.SIGKILL)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # of what it did not read
                pipe.close()
        process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            # It finds the packages that we find, also those beside a script.
            path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "jobs.evaluation.scorers.apart_main"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
                bufsize=0,
                start_new_session=True,  # a Ctrl-C is for us, and its children end with it
            )
            options = {"function": self._function, **self._arguments}
            try:
                _asked(self._process, json.dumps(options).encode(), START_SECONDS)
            except OSError as error:  # a timeout is one
                late = isinstance(error, TimeoutError)
                how = f" took over {START_SECONDS:g} s" if late else f" failed{_how(self._process)}"
                self.close()
                raise ChildFailed(f"to start a process for {self._function}{how}") from None
        return self._process


def _how(process: subprocess.Popen[bytes]) -> str:
    """How it ended, if it did."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        status = process.wait(_ENDING_SECONDS)
        return f" (signal {-status})" if status < 0 else f" (exit status {status})"
    return ""


def _asked(process: subprocess.Popen[bytes], line: bytes, seconds: float) -> bytes:
    """The answer to a line.

    Raises:
        TimeoutError: there is none after so many seconds.
        OSError: the process has ended.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    deadline = time.monotonic() + seconds
    left_to_write = memoryview(line + b"\n")
    while left_to_write:
        _wait_for(deadline, process.stdin, select.POLLOUT)
        # No more than a pipe takes at once, so that it never blocks.
        left_to_write = left_to_write[os.write(process.stdin.fileno(), left_to_write[:_WRITE]) :]
    answer = b""
    while not answer.endswith(b"\n"):
        _wait_for(deadline, process.stdout, select.POLLIN)
        block = os.read(process.stdout.fileno(), _READ)
        if not block:
            raise BrokenPipeError
        answer += block
    return answer


def _wait_for(deadline: float, pipe: IO[bytes], event: int) -> None:
    # Not by `select.select`, which knows no file of a number over 1,023.
    poll = select.poll()
    poll.register(pipe, event)
    left = deadline - time.monotonic()
    if left <= 0 or not poll.poll(left * 1000):
        raise TimeoutError


def row_to_line(row: ScoredRow) -> bytes:
    """A row as JSON, and in it what has no form in JSON as Arrow.

    Raises:
        pa.ArrowException, TypeError, ValueError: Arrow has no form for it either.
    """
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    columns = dict(values.pop("columns"))
    values = {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}
    other = {
        f"{part}.{name}": held.pop(name)
        for part, held in (("row", values), ("columns", columns))
        for name in list(held)
        if not _is_json(held[name])
    }
    line: dict[str, Any] = {"row": values, "columns": columns}
    if other:
        batch = pa.RecordBatch.from_pylist([other])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        line["arrow"] = base64.b64encode(sink.getvalue()).decode()
    return json.dumps(line).encode()


def row_of_line(line: bytes) -> ScoredRow:
    """The row again."""
    told = json.loads(line)
    values, columns = told["row"], told["columns"]
    if "arrow" in told:
        with pa.ipc.open_stream(base64.b64decode(told["arrow"])) as reader:
            (other,) = reader.read_all().to_pylist()
        for name, value in other.items():
            part, _, own = name.partition(".")
            (values if part == "row" else columns)[own] = value
    return ScoredRow(**values, columns=columns)


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_json(v) for k, v in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    return value is None or type(value) in (bool, int, float, str)
