"""One engine process and the two pipes to it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from engine.messages import Message, Start, decode, encode

log = logging.getLogger("pagemill.worker")

# A thread of the engine that waits for others spins for some microseconds, which is how long the
# next operation of a step is away, and then sleeps: on a machine with little to spare a thread that
# spins on takes the core from the one that it waits for.
PATIENT_THREADS = {
    "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "0",
}  # fmt: skip

CLOSING_SECONDS = 10.0
LAST_WORDS = 300  # characters of them that are told of; those of a compiler can be pages


class EngineProcess:
    """A spawned engine. When this object (or this whole process) goes, so does the engine.

    Args:
        config: settings for `engine.config.EngineConfig`.
        env: variables of its environment, besides those of this process.

    Attributes:
        last_words: why it ends, in its own words, or in those of whoever killed it.
    """

    def __init__(self, config: Mapping[str, Any], env: Mapping[str, str] | None = None) -> None:
        engine_in, self_out = os.pipe()
        self_in, engine_out = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "engine", str(engine_in), str(engine_out)],
                pass_fds=(engine_in, engine_out),
                stdin=subprocess.DEVNULL,
                env={**PATIENT_THREADS, **_without_credentials(), **(env or {})},
            )
        finally:
            os.close(engine_in)
            os.close(engine_out)
        self._reader = Connection(self_in, writable=False)
        self._writer = Connection(self_out, readable=False)
        self._send_lock = threading.Lock()
        self.last_words: str | None = None
        self.send(Start(config))

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Message) -> None:
        """Hand over a message; a dead engine is noticed by `receive`, not here."""
        data = encode(message)
        with self._send_lock:
            try:
                self._writer.send_bytes(data)
            except OSError:  # broken pipe, or closed by `close`
                return

    def receive(self) -> Message | None:
        """The next message; None once the engine is gone.

        An engine that sends what cannot be read is broken, and killed.
        """
        try:
            return decode(self._reader.recv_bytes())
        except (EOFError, OSError):
            return None
        except ValueError as error:
            self.last_words = f"it sent what cannot be read: {error}"
            log.error(
                "engine %d: %s", self.pid, self.last_words,
                extra={"event": "engine_crashed", "engine_pid": self.pid},
            )  # fmt: skip
            self.kill()
            return None

    def kill(self) -> None:
        """End it without its help; `receive` then returns None."""
        self._process.kill()

    def close(self) -> int:
        """End the engine and wait for it; returns its exit status (negative: a signal)."""
        if not self._send_lock.acquire(timeout=CLOSING_SECONDS):
            self._process.kill()  # a sender waits for an engine that reads nothing
            self._send_lock.acquire()
        self._writer.close()
        self._send_lock.release()
        try:
            status = self._process.wait(timeout=CLOSING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._reader.close()
        return status

    def death(self, status: int) -> str:
        """How it ended, as the end of a sentence.

        Args:
            status: its exit status; a signal's is negative.
        """
        words = textwrap.shorten(self.last_words or "", LAST_WORDS, placeholder=" …")
        if status < 0:
            how = f"it was killed by {_signal_name(-status)}"
            return f"{how} ({words})" if words else how
        return f"it ended with {words or f'exit status {status}'}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _without_credentials() -> dict[str, str]:
    """This process's environment without what opens the database and the broker, or signs for us.

    The engine reads files of models that come from elsewhere, and needs none of it.
    """
    return {name: value for name, value in os.environ.items() if name not in _CREDENTIALS}


_CREDENTIALS = frozenset(
    {
        *("PAGEMILL_DATABASE_URL", "PAGEMILL_BROKER_URL", "PAGEMILL_WEBHOOK_SECRET"),
        *("PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE"),
    }
)
