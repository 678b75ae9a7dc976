"""How many chunks a worker has at once, whoever brings them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from jobs.waiting import in_pieces


class Slots:
    """Places for chunks.

    A message runs a chunk in the thread that it came in (`run`). Where no messages come, chunks
    run in threads of their own (`run_aside`). Together there are never more than slots.

    Args:
        run_chunk: claims a chunk and brings it to its end; false if there was none.
        on_end: called after each chunk, when its slot is free again.

    Attributes:
        woken_at: when the last message came (`time.monotonic`).
    """

    def __init__(
        self, count: int, run_chunk: Callable[[], bool], on_end: Callable[[], None]
    ) -> None:
        self.woken_at = float("-inf")
        self._run_chunk = run_chunk
        self._on_end = on_end
        self._free = count
        self._changed = threading.Condition()
        self._aside: set[threading.Thread] = set()

    @property
    def free(self) -> int:
        return self._free

    @property
    def aside(self) -> int:
        """Chunks that run in threads of their own."""
        return len(self._aside)

    def run(self) -> None:
        """Run a chunk for a message, once there is a slot."""
        self.woken_at = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: self._free > 0)
            self._free -= 1
        self._run()

    def run_aside(self) -> None:
        """Run as many chunks as there are free slots, in threads of their own."""
        with self._changed:
            threads = [threading.Thread(target=self._run_thread) for _ in range(self._free)]
            self._free = 0
            self._aside.update(threads)
        for thread in threads:
            thread.start()

    def join(self) -> None:
        """Wait until no chunk runs in a thread of its own."""
        with self._changed:
            in_pieces(lambda seconds: self._changed.wait_for(lambda: not self._aside, seconds))

    def _run_thread(self) -> None:
        try:
            self._run()
        finally:
            with self._changed:
                self._aside.discard(threading.current_thread())
                self._changed.notify_all()

    def _run(self) -> None:
        worked = False
        try:
            worked = self._run_chunk()
        finally:
            with self._changed:
                self._free += 1
                self._changed.notify_all()
        if worked:
            self._on_end()
