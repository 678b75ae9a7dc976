"""A real HTTP server that takes what is told to a URL, and answers as it is told to."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# Of `localhost`, by an authority of its own that nobody else knows; its key is no secret.
CERTIFICATE = Path(__file__).with_name("localhost.pem")


@dataclass(frozen=True)
class Request:
    """What came in."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """Takes requests.

    Attributes:
        requests: all that came, in their order.
        answers: the statuses of the next answers; 204 once there is none left.
        headers: of all answers.
        before_answer: called in the thread of each request before it is answered.
    """

    def __init__(self, tls: bool = False) -> None:
        self.requests: list[Request] = []
        self.answers: list[int] = []
        self.headers: dict[str, str] = {}
        self.before_answer: Callable[[], object] = lambda: None
        self._tls = tls
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://localhost:{self.port}/hook"

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append(Request(self.path, dict(self.headers), body))
                receiver.before_answer()
                self.send_response(receiver.answers.pop(0) if receiver.answers else 204)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            do_GET = do_POST  # noqa: N815 (to see that none comes)

            def log_message(self, *_: Any) -> None:
                """Nothing: tests look at the requests."""

        return Handler


@contextlib.contextmanager
def receiving(tls: bool = False) -> Iterator[Receiver]:
    receiver = Receiver(tls)
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.close()


@contextlib.contextmanager
def closed_port() -> Iterator[str]:
    """A URL at which nothing listens."""
    import socket

    with socket.socket() as taken:  # bound, and so nobody else's
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}/hook"
