"""A lease that is renewed while what it is for goes on."""

from __future__ import annotations

import threading

import pytest

from jobs import renewal
from jobs.leaving import ToldToLeave

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("error", [KeyboardInterrupt, ToldToLeave])
def test_who_is_told_to_leave_waits_for_no_database(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewal, "PATIENCE_SECONDS", 0.01)
    asked, answered = threading.Event(), threading.Event()

    def hangs() -> bool:
        asked.set()
        return answered.wait(60)

    def interrupted() -> None:
        with renewal.renewed(hangs, 0.01, lambda error: None):
            asked.wait(60)
            raise error

    try:
        with pytest.raises(error):
            interrupted()
        assert not answered.is_set()
    finally:
        answered.set()


def test_who_is_not_waits_for_what_is_asked() -> None:
    """Else the lease could be renewed after it was given up."""
    asked, answered = threading.Event(), threading.Event()

    def slow() -> bool:
        asked.set()
        over.wait(0.1)
        answered.set()
        return True

    over = threading.Event()
    with renewal.renewed(slow, 0.01, lambda error: None):
        asked.wait(60)
    assert answered.is_set()
