"""A process that works in rounds is told to leave, and what tells it can be lost on the way."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.beat import Beat
from jobs.leaving import Leaving, ToldToLeave, hang_up
from jobs.settings import Settings
from jobs.storage import Storage
from jobs.store import Store

pytestmark = pytest.mark.quick


@pytest.fixture
def leaving() -> Iterator[Leaving]:
    before = signal.getsignal(signal.SIGTERM)
    leaving = Leaving()
    leaving.on(signal.SIGTERM)
    yield leaving
    signal.signal(signal.SIGTERM, before)


def swallowed() -> None:
    """A signal whose exception an error takes the place of."""
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        raise OSError("something could not be put in order")


def test_a_signal_ends_what_goes_on(leaving: Leaving) -> None:
    leaving.check()
    with pytest.raises(ToldToLeave) as told:
        signal.raise_signal(signal.SIGTERM)
    assert told.value.code == 0


def test_it_is_remembered(leaving: Leaving) -> None:
    with contextlib.suppress(OSError):
        swallowed()
    with pytest.raises(ToldToLeave):
        leaving.check()


def test_a_hang_up_that_is_ignored_stays_so() -> None:
    """As under nohup."""
    assert hang_up() == (signal.SIGHUP,)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert hang_up() == ()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_beat_leaves_although_it_was_lost(
    leaving: Leaving, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings.from_env({"PAGEMILL_SWEEP_SECONDS": "3600"})
    beat = Beat(settings, store, Storage(str(tmp_path)), leaving)
    monkeypatch.setattr(beat, "finish", swallowed)
    with pytest.raises(ToldToLeave):
        beat.run()
