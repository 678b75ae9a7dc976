"""What a run on a GPU is made of: items, each of which is measured or checked by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.gpu.device import Device

# What became of an item.
PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"


class NotHere(Exception):
    """The item cannot run on this machine; says why."""


@dataclass(frozen=True)
class Surroundings:
    """What an item is given.

    Attributes:
        device: to measure on, or its stand-in.
        known: figures of the items that ended before, by name.
    """

    device: Device
    known: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Item:
    """One measurement or check.

    Attributes:
        name: unique.
        group: items of one group share a process, one after the other.
        run: gives figures, and raises where something is wrong.
        limit: seconds after which it is given up.
    """

    name: str
    group: str
    run: Callable[[Surroundings], Mapping[str, Any]]
    limit: float = 60.0


@dataclass(frozen=True)
class Outcome:
    """What became of an item.

    Attributes:
        status: `PASSED`, `FAILED` or `NOT_RUN`.
        seconds: that it took.
        message: what went wrong, or why it was not run.
    """

    name: str
    status: str
    seconds: float = 0.0
    message: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """What is printed of it."""
        shown = "  ".join(f"{name}={_short(value)}" for name, value in self.figures.items())
        said = "  ".join(filter(None, (self.message, shown)))
        return f"{self.status:7}  {self.name}  ({self.seconds:.1f} s)  {said}".rstrip()


def unique(items: Sequence[Item]) -> tuple[Item, ...]:
    """The items, whose names must differ."""
    names = [item.name for item in items]
    assert len(set(names)) == len(names), "two items have one name"
    return tuple(items)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
