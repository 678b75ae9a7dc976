"""What a URL says of TLS reaches the wire: seen from the first bytes that a real client sends."""

from __future__ import annotations

import dataclasses
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jobs.database import Database
from jobs.errors import BrokerError, DatabaseUnavailable
from jobs.settings import Settings
from jobs.wake import Sender, make_app

pytestmark = pytest.mark.quick

SETTINGS = Settings.from_env({"PAGEMILL_HOME": "/nowhere"})
SSL_REQUEST = bytes.fromhex("0000000804d2162f")  # of PostgreSQL's protocol
HANDSHAKE = b"\x16\x03"  # a record of TLS that begins a session


@contextmanager
def listener(answer: bytes = b"") -> Iterator[tuple[int, list[bytes]]]:
    """A port, and the first bytes of each connection to it, which is answered and closed."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    heard.append(connection.recv(1000))
                    connection.sendall(answer)

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1], heard
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(60)


@pytest.mark.parametrize(("scheme", "first"), [("rediss", HANDSHAKE), ("redis", b"*")])
def test_a_redis_over_tls_hears_nothing_before_the_handshake(scheme: str, first: bytes) -> None:
    with listener() as (port, heard):
        url = f"{scheme}://us:secret@127.0.0.1:{port}/0"
        settings = dataclasses.replace(SETTINGS, broker_url=url)
        with Sender(settings) as sender, pytest.raises(BrokerError):
            sender.waiting("m")
    assert heard
    assert all(said.startswith(first) for said in heard)
    assert any(b"secret" in said for said in heard) == (scheme == "redis")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}),
        ("?ssl_ca_certs=/ca.pem", {"ssl_ca_certs": "/ca.pem"}),
        ("?ssl_certfile=/c.pem&ssl_keyfile=/k.pem", {"ssl_certfile": "/c.pem"}),
        ("?ssl_check_hostname=false", {"ssl_check_hostname": False}),
        ("?ssl_cert_reqs=none", {"ssl_cert_reqs": ssl.CERT_NONE}),
    ],
)
def test_the_client_of_redis_gets_what_the_url_says(query: str, expected: dict[str, Any]) -> None:
    url = f"rediss://us:p%40ss@redis.internal:6380/3{query}"
    app = make_app(dataclasses.replace(SETTINGS, broker_url=url))
    with app.connection_for_write() as connection:
        given = {**connection.ssl, "user": connection.userid, "password": connection.password}
    app.close()
    assert (given["user"], given["password"]) == ("us", "p@ss")
    assert {name: given[name] for name in expected} == expected


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_a_postgresql_without_tls_gets_no_password(mode: str, tmp_path: Path) -> None:
    """The server says that it has none, as one does that somebody put in between."""
    authority = tmp_path / "ca.pem"
    authority.touch()
    with listener(b"N") as (port, heard):
        url = f"postgresql://us:secret@127.0.0.1:{port}/x?sslmode={mode}"
        database = Database(url if mode == "require" else f"{url}&sslrootcert={authority}")
        with pytest.raises(DatabaseUnavailable, match="SSL"), database.read():
            pass
        database.close()
    assert heard
    assert set(heard) == {SSL_REQUEST}
