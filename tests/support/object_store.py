"""A server that holds a few objects, as S3 does: enough for a file to be read from it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def object_store(objects: Mapping[str, bytes]) -> Iterator[int]:
    """Serves objects by their paths (`/bucket/name`); gives the port. Others are forbidden."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, with_body: bool) -> None:
            content = objects.get(self.path.partition("?")[0])
            part, status = content or b"", 403 if content is None else 200
            if wanted := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
                part, status = part[int(wanted[1]) : int(wanted[2]) + 1], 206
            self.send_response(status)
            self.send_header("Content-Length", str(len(part)))
            self.send_header("Last-Modified", "Mon, 30 Nov 2026 00:00:00 GMT")
            self.end_headers()
            if with_body:
                self.wfile.write(part)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
