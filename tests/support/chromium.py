"""A real browser without a window, driven over its own protocol through two pipes.

That needs no library: messages are JSON with a zero byte behind each, see
https://chromedevtools.github.io/devtools-protocol/.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE = 60.0  # seconds until an answer has to be there


def installed() -> str | None:
    """The browser's program, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """A page in a browser.

    Attributes:
        events: what the browser told of its own accord: method and parameters.
    """

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._buffer = b""
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.events: list[tuple[str, dict[str, Any]]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Log", "Runtime", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser for something, and wait for its answer."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _PATIENCE
        while True:
            answer = self._next(deadline)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def open(self, path: Path, width: int = 1440, *, dark: bool = False, height: int = 900) -> None:
        """Load a file, in a window of that width, and wait until it is there."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="screen", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=path.absolute().as_uri())
        self._wait_for("Page.loadEventFired")

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, by the browser's hand: the page runs none."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def complaints(self) -> list[str]:
        """What the console says: errors, and what the page's own policy kept out."""
        return [
            str(parameters.get("entry", parameters))
            for method, parameters in self.events
            if method in ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        ]

    def requests(self) -> list[str]:
        """The URLs that the page asked for."""
        return [
            parameters["request"]["url"]
            for method, parameters in self.events
            if method == "Network.requestWillBeSent"
        ]

    def screenshot(self, *, whole: bool = False) -> bytes:
        """The window, or the whole page, as PNG."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(taken["data"])

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def close(self) -> None:
        """End the browser, and wait until it has written the last of its files."""
        self._session = None
        self.call("Browser.close")
        while select.select([self._from], [], [], _PATIENCE)[0] and os.read(self._from, 1 << 20):
            pass

    def _wait_for(self, method: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not any(name == method for name, _ in self.events):
            self._next(deadline)

    def _next(self, deadline: float) -> dict[str, Any]:
        """The next message; those that answer nothing are kept."""
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            assert left > 0, f"the browser said nothing more; it told {self.events[-3:]}"
            if select.select([self._from], [], [], left)[0]:
                data = os.read(self._from, 1 << 20)
                assert data, "the browser has ended"
                self._buffer += data
        first, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        if "method" in message:
            self.events.append((message["method"], message["params"]))
        return message


@contextlib.contextmanager
def chromium(program: str, profile: Path) -> Iterator[Chromium]:
    """Start a browser with a profile of its own, and end it."""
    their_input, to_browser = _pipe()
    from_browser, their_output = _pipe()
    options = [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--no-first-run", "--disable-extensions", "--disable-background-networking",
        "--remote-debugging-pipe", "--hide-scrollbars", f"--user-data-dir={profile}",
    ]  # fmt: skip
    environment = {
        name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ
    }
    # The browser reads from file 3 and writes to file 4.
    files = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    pipes = [(os.POSIX_SPAWN_DUP2, their_input, 3), (os.POSIX_SPAWN_DUP2, their_output, 4)]
    process = os.posix_spawn(
        program, [program, *options, "about:blank"], environment, file_actions=[*files, *pipes]
    )
    os.close(their_input)
    os.close(their_output)
    try:
        browser = Chromium(to_browser, from_browser)
        yield browser
        browser.close()
    finally:
        os.kill(process, signal.SIGKILL)  # a zombie by now, unless something failed
        os.waitpid(process, 0)
        os.close(to_browser)
        os.close(from_browser)


def _pipe() -> tuple[int, int]:
    """A pipe of file numbers that are not among those the browser takes."""
    ends = os.pipe()
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return moved[0], moved[1]
