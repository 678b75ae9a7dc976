"""A hub of models on this machine: what its client asks of the real one, and ways to fail."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".gguf", ".bin")  # what is in large storage
_PIECE = 4096


@dataclass(frozen=True)
class Asked:
    """A request, as it came."""

    method: str
    path: str
    range: str | None
    token: str | None
    storage: bool


@dataclass
class FakeHub:
    """Serves folders as repositories.

    Attributes:
        url: for `HF_ENDPOINT`.
        refusals: (status, code of the hub's own) for repositories that are not given out; with
            the code `GatedRepo` only their files are not.
        cut_after: bytes of each answer with a large file, after which the connection is reset.
        held: while it is not set, an answer with a large file stops in the middle.
        spoil: change the content of large files.
        lies: names of files whose content is changed, whatever their size.
        asked: all requests.
    """

    url: str = ""
    storage_url: str = ""
    folders: dict[str, Path] = field(default_factory=dict)
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    token: str | None = None
    cut_after: int | None = None
    held: threading.Event = field(default_factory=threading.Event)
    in_the_middle: threading.Event = field(default_factory=threading.Event)
    spoil: bool = False
    lies: set[str] = field(default_factory=set)
    asked: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.held.set()

    def gets(self, ending: str) -> list[Asked]:
        """Requests for the content of files of that ending, where it was given."""
        return [
            asked for asked in self.asked
            if asked.method == "GET" and asked.path.endswith(ending) and asked.storage
        ]  # fmt: skip

    def commit(self, name: str) -> str:
        content = b"".join(path.read_bytes() for path in self._files(name))
        return hashlib.sha1(content).hexdigest()

    def _files(self, name: str) -> list[Path]:
        return sorted(path for path in self.folders[name].rglob("*") if path.is_file())

    def listing(self, name: str) -> list[dict[str, Any]]:
        found = []
        for path in self._files(name):
            content = path.read_bytes()
            entry: dict[str, Any] = {
                "type": "file",
                "path": path.relative_to(self.folders[name]).as_posix(),
                "oid": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(),
                "size": len(content),
            }
            if path.suffix in LARGE:
                digest = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 130}
            found.append(entry)
        return found

    def info(self, name: str) -> dict[str, Any]:
        siblings = []
        for entry in self.listing(name):
            sibling = {"rfilename": entry["path"], "size": entry["size"], "blobId": entry["oid"]}
            if lfs := entry.get("lfs"):
                sibling["lfs"] = {"sha256": lfs["oid"], "size": lfs["size"], "pointerSize": 130}
            siblings.append(sibling)
        return {"id": name, "modelId": name, "sha": self.commit(name), "siblings": siblings}


@contextlib.contextmanager
def serving() -> Iterator[FakeHub]:
    """A hub, and the storage that it sends its client to for large files."""
    hub = FakeHub()
    with contextlib.ExitStack() as stack:
        hub.url = stack.enter_context(_server(lambda *a: _Handler(hub, False, *a)))
        hub.storage_url = stack.enter_context(_server(lambda *a: _Handler(hub, True, *a)))
        try:
            yield hub
        finally:
            hub.held.set()


@contextlib.contextmanager
def _server(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)  # type: ignore[arg-type]
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, hub: FakeHub, is_storage: bool, *more: Any) -> None:
        self._hub = hub
        self._is_storage = is_storage
        super().__init__(*more)

    def log_message(self, format: str, *args: object) -> None:
        return

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        token = self.headers.get("Authorization")
        self._hub.asked.append(
            Asked(self.command, path, self.headers.get("Range"), token, self._is_storage)
        )
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if self._is_storage:
                name, _, file = path.partition("/-/")
                self._content(self._hub.folders[name] / file, {})
            else:
                self._answer(path, token)

    def _answer(self, path: str, token: str | None) -> None:
        api = re.fullmatch(r"api/models/(.+?)(?:/(revision|tree)/([^/]+))?", path)
        file = re.fullmatch(r"(.+?)/resolve/([^/]+)/(.+)", path)
        found = api or file
        if found is None:  # the client asks for more than a model
            self._json(404, {"error": "no"})
            return
        name = found[1]
        status, code = self._hub.refusals.get(name, (0, ""))
        allowed = self._hub.token is None or token == f"Bearer {self._hub.token}"
        if status and not (code == "GatedRepo" and api):
            self._json(status, {"error": "no"}, {"X-Error-Code": code} if code else {})
        elif name not in self._hub.folders or not allowed:
            self._json(401, {"error": "no"}, {"X-Error-Code": "RepoNotFound"})
        elif (api[3] if api else found[2]) not in (None, "main", self._hub.commit(name)):
            self._json(404, {"error": "no"}, {"X-Error-Code": "RevisionNotFound"})
        elif api:
            listing = api[2] == "tree"
            self._json(200, self._hub.listing(name) if listing else self._hub.info(name))
        elif file:
            self._file(name, file[3])

    def _file(self, name: str, file: str) -> None:
        entry = next((e for e in self._hub.listing(name) if e["path"] == file), None)
        headers = {"X-Repo-Commit": self._hub.commit(name)}
        if entry is None:
            self._json(404, {"error": "no"}, {**headers, "X-Error-Code": "EntryNotFound"})
        elif lfs := entry.get("lfs"):
            signed = f"{self._hub.storage_url}/{name}/-/{file}?Signature=signed-secret"
            headers |= {"X-Linked-Etag": f'"{lfs["oid"]}"', "X-Linked-Size": str(lfs["size"])}
            self._head(302, {**headers, "Location": signed, "Content-Length": "0"})
        else:
            path = self._hub.folders[name] / file
            self._content(path, {**headers, "ETag": f'"{entry["oid"]}"'})

    def _content(self, path: Path, headers: Mapping[str, str]) -> None:
        content = path.read_bytes()
        start, status, ranged = 0, 200, self.headers.get("Range")
        if ranged:
            start, status = int(ranged.removeprefix("bytes=").partition("-")[0]), 206
            headers = {
                **headers, "Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}",
            }  # fmt: skip
        body = content[start:]
        if (self._hub.spoil and path.suffix in LARGE) or path.name in self._hub.lies:
            body = bytes(byte ^ 1 for byte in body)
        self._head(status, {**headers, "Content-Length": str(len(body))})
        if self.command == "GET":
            self._body(body, large=path.suffix in LARGE)

    def _body(self, body: bytes, *, large: bool) -> None:
        for at in range(0, len(body), _PIECE):
            if large and self._hub.cut_after is not None and at >= self._hub.cut_after:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            if large and at >= len(body) // 2 and not self._hub.held.is_set():
                self.wfile.flush()
                self._hub.in_the_middle.set()
                self._hub.held.wait(60)
            self.wfile.write(body[at : at + _PIECE])

    def _json(self, status: int, value: object, headers: Mapping[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self._head(
            status,
            {
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
                **(headers or {}),
            },
        )
        if self.command == "GET":
            self.wfile.write(body)

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
