"""What the start of an engine is at."""

from __future__ import annotations

import threading

import pytest

from engine.startup import Step, listening, tell

pytestmark = pytest.mark.quick


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_step_tells_its_share_and_when_it_ends() -> None:
    clock, told = Clock(), list[str]()
    with listening(told.append):
        step = Step("loading weights", 200, clock)
        for seconds in (0.5, 0.5, 8.0, 11.0):
            clock.now += seconds
            step.add(20)
    assert told == [
        "loading weights 0%",
        "loading weights 10%",  # too early to say
        "loading weights 20%, about 4 s left",
        "loading weights 30%, about 21 s left",
        "loading weights 40%, about 30 s left",
    ]


def test_long_steps_are_told_in_minutes() -> None:
    clock, told = Clock(), list[str]()
    with listening(told.append):
        step = Step("converting the model", 3, clock)
        clock.now += 95
        step.add(1)
    assert told[-1] == "converting the model 33%, about 3 min 10 s left"


def test_it_is_not_told_more_often_than_anybody_could_read() -> None:
    clock, told = Clock(), list[str]()
    with listening(told.append):
        step = Step("loading weights", 1000, clock)
        for _ in range(1000):
            clock.now += 0.001
            step.add(1)
    assert len(told) <= 5


def test_nothing_to_do_is_done() -> None:
    told = list[str]()
    with listening(told.append):
        Step("loading weights", 0)
    assert told == ["loading weights 0%"]


def test_only_who_listens_is_told_and_only_meanwhile() -> None:
    told = list[str]()
    tell("nobody listens")
    with listening(told.append):
        tell("here")
        other = threading.Thread(target=tell, args=("another thread",))
        other.start()
        other.join()
    tell("nobody listens any more")
    assert told == ["here"]
