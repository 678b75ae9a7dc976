"""One HTTP request, and no more than that.

No redirect is followed: it would lead where nobody was allowed to point. Nothing of the answer is
kept but its status, so that a URL that leads into an internal network reads nothing there. The
whole of it, from the connection to the last header, has one deadline; timeouts of sockets begin
anew with each byte, and a receiver that sends one now and then would hold us for ever.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from urllib.parse import SplitResult, unquote_to_bytes, urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


class NotSent(Exception):
    """There was no answer; says why, without the URL."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a receiver said.

    Attributes:
        retry_after: its header of that name, as it is.
    """

    status: int
    retry_after: str | None


def post(url: str, body: bytes, headers: Mapping[str, str], seconds: float) -> Answer:
    """Send a body to a URL that `jobs.notifications.urls` does not refuse.

    Args:
        seconds: for all of it.

    Raises:
        NotSent: there was no answer in that time, or none that is HTTP.
    """
    parts = urlsplit(url)
    deadline = time.monotonic() + seconds
    late = f"no answer within {seconds:g} s"
    try:
        with _connected(parts, deadline) as connection, _cut_off(connection, deadline):
            connection.request("POST", _target(parts), body, {**headers, **_of_place(parts)})
            answer = connection.getresponse()
            if time.monotonic() >= deadline:  # to be cut off looks like the end of the headers
                raise TimeoutError
            return Answer(answer.status, answer.headers.get("Retry-After"))
    except TimeoutError:
        raise NotSent(late) from None
    except ssl.SSLCertVerificationError as error:
        raise NotSent(f"its certificate is not accepted: {error.verify_message}") from None
    except socket.gaierror as error:
        raise NotSent(f"its host cannot be found: {error.strerror}") from None
    except (OSError, http.client.HTTPException) as error:
        if time.monotonic() >= deadline:  # we cut it off
            raise NotSent(late) from None
        raise NotSent(_in_words(error)) from None


@contextlib.contextmanager
def _connected(parts: SplitResult, deadline: float) -> Iterator[http.client.HTTPConnection]:
    host, port = parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme]
    with _socket(host, port, deadline) as plain, contextlib.ExitStack() as stack:
        used = plain
        if parts.scheme == "https":
            used = stack.enter_context(_trusted().wrap_socket(plain, server_hostname=host))
        connection = http.client.HTTPConnection(host, port)
        connection.auto_open = 0
        connection.sock = used
        yield connection


def _socket(host: str, port: int, deadline: float) -> socket.socket:
    """A connection to the first of the host's addresses that takes one."""
    failure: OSError = OSError("it has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        opened = socket.socket(family, kind, protocol)
        try:
            opened.settimeout(left)
            opened.connect(address)
        except OSError as error:
            opened.close()
            failure = error
        else:
            return opened
    raise failure


@contextlib.contextmanager
def _cut_off(connection: http.client.HTTPConnection, deadline: float) -> Iterator[None]:
    """Let whatever waits for the receiver end at the deadline."""
    used = connection.sock

    def cut() -> None:
        with contextlib.suppress(OSError):
            # Not by the method of a TLS socket, which takes its session from who is reading.
            socket.socket.shutdown(used, socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, deadline - time.monotonic()), cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@cache
def _trusted() -> ssl.SSLContext:
    """What certificates are checked by: the system's, or those of SSL_CERT_FILE."""
    return ssl.create_default_context()


def _target(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _of_place(parts: SplitResult) -> dict[str, str]:
    """Headers that name the host, and who we are there."""
    headers = {"Host": parts.netloc.rpartition("@")[2]}
    if parts.username is not None:
        pair = b":".join(map(unquote_to_bytes, (parts.username, parts.password or "")))
        headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    return headers


def _in_words(error: OSError | http.client.HTTPException) -> str:
    """Why there was no answer; what the other end wrote is not quoted."""
    match error:
        case http.client.RemoteDisconnected() | ConnectionResetError() | BrokenPipeError():
            return "it closed the connection without an answer"
        case ConnectionRefusedError():
            return "connection refused"
        case ssl.SSLError():
            return f"TLS failed: {error.reason or type(error).__name__}"
        case OSError():
            return f"it cannot be reached: {error.strerror or type(error).__name__}"
    return f"its answer is not HTTP ({type(error).__name__})"
