"""A way to PostgreSQL that is cut in the worst moment: between a commit and its answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import make_url

_COMMIT = b"COMMIT\0"  # the statement, and the server's word that it was done


class CuttingProxy:
    """Hands bytes on in both directions; `cut_next_commit` swallows the answer to one COMMIT.

    Attributes:
        cuts: commits whose answer was swallowed.
    """

    def __init__(self, url: str) -> None:
        given = make_url(url)
        self._host = str(given.host or given.query["host"])
        self._port = given.port or 5432
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._armed = threading.Event()
        self.cuts = 0
        port = self._listener.getsockname()[1]
        through = given.set(host="127.0.0.1", port=port).difference_update_query(["host", "port"])
        self.url = through.render_as_string(hide_password=False)
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_next_commit(self) -> None:
        self._armed.set()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # to close it ends nobody's wait there
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = self._connect()
        swallowing = threading.Event()
        threading.Thread(
            target=self._answer, args=(client, server, swallowing), daemon=True
        ).start()
        with client, server, suppress(OSError):
            while data := client.recv(65536):
                if _COMMIT in data and self._armed.is_set():
                    self._armed.clear()
                    swallowing.set()
                server.sendall(data)

    def _answer(
        self, client: socket.socket, server: socket.socket, swallowing: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if swallowing.is_set():
                    assert _COMMIT in data  # it has happened
                    self.cuts += 1
                    break
                client.sendall(data)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _connect(self) -> socket.socket:
        if self._host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{self._host}/.s.PGSQL.{self._port}")
            return server
        return socket.create_connection((self._host, self._port))


@contextmanager
def cutting_proxy(url: str) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
