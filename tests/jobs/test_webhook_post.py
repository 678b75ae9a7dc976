"""One request to a receiver, over real sockets."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from jobs.notifications import post as module
from jobs.notifications.post import Answer, NotSent, post
from tests.support.receiver import CERTIFICATE, Receiver, closed_port, receiving

pytestmark = pytest.mark.quick

PATIENT = 30.0  # never waited for
SHORT = 0.2


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@contextmanager
def raw(answer: bytes, hang: bool = False) -> Iterator[str]:
    """A port that sends some bytes to whoever comes; and then closes, unless it hangs."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            try:
                connection, _ = server.accept()
            except OSError:  # nobody came
                return
            with connection:
                connection.sendall(answer)
                if hang:
                    over.wait(60)
                else:
                    connection.recv(100_000)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        finally:
            over.set()
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            thread.join(60)


def test_the_body_and_the_headers_arrive(receiver: Receiver) -> None:
    url = f"{receiver.url}?key=a%20b#part"
    assert post(url, b'{"a": 1}', {"Pagemill-Event": "x"}, PATIENT) == Answer(204, None)
    (request,) = receiver.requests
    assert (request.path, request.body) == ("/hook?key=a%20b", b'{"a": 1}')
    assert request.headers["Host"] == f"localhost:{receiver.port}"
    assert request.headers["Pagemill-Event"] == "x"
    assert request.headers["Content-Length"] == "8"
    assert "Authorization" not in request.headers


def test_a_url_without_a_path(receiver: Receiver) -> None:
    post(f"http://127.0.0.1:{receiver.port}", b"{}", {}, PATIENT)
    assert receiver.requests[0].path == "/"


def test_who_we_are_comes_from_the_url(receiver: Receiver) -> None:
    post(f"http://us:p%40ss@localhost:{receiver.port}/hook", b"{}", {}, PATIENT)
    (request,) = receiver.requests
    assert request.headers["Host"] == f"localhost:{receiver.port}"
    kind, _, pair = request.headers["Authorization"].partition(" ")
    assert (kind, base64.b64decode(pair)) == ("Basic", b"us:p@ss")


def test_a_redirect_is_an_answer_and_not_followed(receiver: Receiver) -> None:
    with receiving() as other:
        receiver.answers = [307]
        receiver.headers = {"Location": other.url}
        assert post(receiver.url, b"{}", {}, PATIENT).status == 307
        assert (len(receiver.requests), other.requests) == (1, [])


def test_what_it_asks_for_is_told(receiver: Receiver) -> None:
    receiver.answers = [429]
    receiver.headers = {"Retry-After": "120"}
    assert post(receiver.url, b"{}", {}, PATIENT) == Answer(429, "120")


def test_nobody_listens() -> None:
    with closed_port() as url, pytest.raises(NotSent, match=r"^connection refused$"):
        post(url, b"{}", {}, PATIENT)


def test_a_host_that_is_not_there() -> None:
    with pytest.raises(NotSent, match="its host cannot be found"):
        post("http://nowhere.invalid/secret", b"{}", {}, PATIENT)


def test_a_receiver_that_says_nothing() -> None:
    with raw(b"", hang=True) as url, pytest.raises(NotSent, match=r"no answer within 0.2 s"):
        post(url, b"{}", {}, SHORT)


def test_a_receiver_that_does_not_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte would begin a timeout of the socket anew; there is one for all of them."""
    real = socket.socket.settimeout
    monkeypatch.setattr(socket.socket, "settimeout", lambda self, _seconds: real(self, 60))
    endless = b"HTTP/1.1 200 OK\r\nX: "
    with raw(endless, hang=True) as url, pytest.raises(NotSent, match="no answer within"):
        post(url, b"{}", {}, SHORT)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH secret\r\n", r"its answer is not HTTP \(BadStatusLine\)$"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1000, "its answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000, "its answer is not HTTP"),
    ],
)
def test_what_is_no_answer(answer: bytes, reason: str) -> None:
    with raw(answer) as url, pytest.raises(NotSent, match=reason):
        post(url, b"{}", {}, PATIENT)


def test_a_large_answer_is_not_read() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n"
    with raw(head, hang=True) as url:
        assert post(url, b"{}", {}, PATIENT).status == 200


# ---- TLS


@pytest.fixture
def secure() -> Iterator[Receiver]:
    module._trusted.cache_clear()
    with receiving(tls=True) as receiver:
        yield receiver
    module._trusted.cache_clear()


def test_a_certificate_that_is_trusted(secure: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    assert post(secure.url, b"{}", {}, PATIENT).status == 204
    assert secure.requests[0].headers["Host"] == f"localhost:{secure.port}"


def test_a_certificate_that_nobody_knows(secure: Receiver) -> None:
    with pytest.raises(NotSent, match="its certificate is not accepted: self-signed certificate"):
        post(secure.url, b"{}", {}, PATIENT)
    assert secure.requests == []


def test_a_certificate_of_another_host(secure: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with pytest.raises(NotSent, match="its certificate is not accepted: IP address mismatch"):
        post(f"https://127.0.0.1:{secure.port}/", b"{}", {}, PATIENT)
    assert secure.requests == []


def test_a_secure_receiver_that_says_nothing(
    secure: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    over = threading.Event()
    secure.before_answer = lambda: over.wait(60)
    try:
        with pytest.raises(NotSent, match="no answer within"):
            post(secure.url, b"{}", {}, SHORT)
    finally:
        over.set()


def test_tls_with_what_has_none(receiver: Receiver) -> None:
    with pytest.raises(NotSent, match="TLS failed"):
        post(f"https://localhost:{receiver.port}/", b"{}", {}, PATIENT)
