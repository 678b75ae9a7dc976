"""Metrics and health of a worker over HTTP."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from worker.errors import MetricsUnavailable

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

PATIENCE_SECONDS = 10.0  # with a client that sends or takes nothing
_LOOK_SECONDS = 0.1  # how quickly it ends


class MetricsServer:
    """Serves `/metrics` and `/healthz` from a thread of its own.

    There is no way to change anything through it, and no password; listen where only those
    reach it who may know.

    Args:
        host, port: where to listen; port 0 is any free one.
        registry: the metrics.
        trouble: why the worker is not healthy, in a sentence; None if it is.

    Raises:
        MetricsUnavailable: the address cannot be listened on.
    """

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        trouble: Callable[[], str | None],
    ) -> None:
        self._trouble = trouble
        self._metrics: Callable[..., Iterable[bytes]] = make_wsgi_app(registry)
        try:
            (family, *_, address), *_ = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            at = (str(address[0]), int(address[1]))
            self._server = _server_class(family)(at, _QuietHandler)
        except (OSError, UnicodeError) as error:
            raise MetricsUnavailable(
                f"metrics cannot be served on {host} port {port}: {error}; choose another with "
                "--metrics-port or --metrics-host (PAGEMILL_METRICS_PORT, PAGEMILL_METRICS_HOST)"
            ) from None
        self._server.set_app(self._answer)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_LOOK_SECONDS,), name="metrics", daemon=True
        )

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host, port = self._server.server_address[:2]
        return f"http://{f'[{host!s}]' if ':' in str(host) else host!s}:{port}/metrics"

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def _answer(self, environ: WSGIEnvironment, respond: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return self._metrics(environ, respond)
        if path == "/healthz":
            trouble = self._trouble()
            status = "200 OK" if trouble is None else "503 Service Unavailable"
            return _text(respond, status, trouble or "ok")
        return _text(respond, "404 Not Found", "there are /metrics and /healthz")


def _text(respond: StartResponse, status: str, sentence: str) -> Iterable[bytes]:
    respond(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{sentence}\n".encode()]


def _server_class(family: int) -> type[WSGIServer]:
    class Server(socketserver.ThreadingMixIn, WSGIServer):
        address_family = family
        daemon_threads = True

        def server_bind(self) -> None:
            # Not HTTPServer's, which asks the name service who we are, and may wait long for it.
            socketserver.TCPServer.server_bind(self)
            self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
            self.setup_environ()

    return Server


class _QuietHandler(WSGIRequestHandler):
    timeout = PATIENCE_SECONDS

    def log_message(self, format: str, *args: object) -> None:
        pass
