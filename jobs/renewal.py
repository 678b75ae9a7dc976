"""Keeping a lease while what it is for takes its time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from jobs.errors import JobsError

PATIENCE_SECONDS = 2.0


@contextlib.contextmanager
def renewed(
    renew: Callable[[], bool],
    lease_seconds: float,
    failed: Callable[[JobsError], None],
    lost: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """Renew a lease during the block, in a thread.

    Args:
        renew: False if the lease was taken over; SQL will refuse the result then.
        failed: told of an error; the next renewal is tried all the same.
        lost: told, in that thread, if the block goes on although the lease is gone.
    """
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(lease_seconds / 3):
            try:
                if not renew():
                    # A block that has done its work has let go of the lease, and ends in a moment.
                    if not over.wait(lease_seconds / 3):
                        lost()
                    return
            except JobsError as error:
                failed(error)

    thread = threading.Thread(target=go_on, name="lease", daemon=True)
    thread.start()
    patience = None
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        patience = PATIENCE_SECONDS  # whoever was told to leave waits for no database
        raise
    finally:
        over.set()
        thread.join(patience)
