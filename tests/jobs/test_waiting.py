"""Long waits are in pieces, so that no signal waits for their end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from jobs.periodic import Periodic
from jobs.waiting import PIECE_SECONDS, in_pieces
from worker.slots import Slots

pytestmark = pytest.mark.quick


class Signalled(BaseException):
    pass


def raises(*_: object) -> None:
    raise Signalled


@pytest.fixture
def unnoticed() -> Iterator[Callable[[], None]]:
    """Sends a signal soon, and not to the main thread: as one that comes just before the kernel
    lets that thread sleep, it ends no wait there, and its handler is called after the wait."""
    before = signal.signal(signal.SIGUSR1, raises)
    threads = []

    def send() -> None:
        time.sleep(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    def start() -> None:
        threads.append(threading.Thread(target=send))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join()
    signal.signal(signal.SIGUSR1, before)


def a_round_of_an_hour() -> None:
    Periodic("x", 3600, lambda: None).run()


def a_chunk_that_runs() -> None:
    ended = threading.Event()
    slots = Slots(1, lambda: ended.wait(60), lambda: None)
    slots.run_aside()
    try:
        slots.join()
    finally:
        ended.set()


@pytest.mark.parametrize(
    "wait", [lambda: in_pieces(threading.Event().wait), a_round_of_an_hour, a_chunk_that_runs]
)
def test_a_signal_is_seen(unnoticed: Callable[[], None], wait: Callable[[], object]) -> None:
    def signalled() -> None:
        unnoticed()
        wait()

    started = time.monotonic()
    with pytest.raises(Signalled):  # before the wait, too, on a machine that stands still
        signalled()
    assert time.monotonic() - started < 50


def test_it_ends_when_it_happens() -> None:
    event = threading.Event()
    threading.Timer(2.5 * PIECE_SECONDS, event.set).start()
    assert in_pieces(event.wait, 60)


def test_it_ends_in_time() -> None:
    started = time.monotonic()
    assert not in_pieces(threading.Event().wait, 1.5 * PIECE_SECONDS)
    assert time.monotonic() - started >= 1.5 * PIECE_SECONDS
