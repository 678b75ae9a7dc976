"""Checks side by side, each with a time limit.

A disk, a database or a driver may hang, and nothing ends a call into it. So each check has a thread
of its own, which is left behind when its time is over, and ends with the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from jobs.doctor.findings import Finding, fault
from jobs.errors import JobsError, Unusable


@dataclass(frozen=True, slots=True)
class Check:
    """Something to look at.

    Attributes:
        name: of the finding that says that it hangs, or fails as nobody foresaw.
        look: gives its findings as it makes them.
        seconds: how long it may take, all in all.
        advice: what to do if it takes longer, or raises an error of ours.
    """

    name: str
    look: Callable[[], Iterable[Finding]]
    seconds: float
    advice: str


def examine(checks: Sequence[Check]) -> Iterator[Finding]:
    """The findings of all checks, in their order, each as soon as it is known."""
    for running in [_Running(check) for check in checks]:
        yield from running.findings()


class _Running:
    """A check that was begun."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._changed = threading.Condition()
        self._found: list[Finding] = []
        self._ended = False
        self._deadline = time.monotonic() + check.seconds
        threading.Thread(target=self._look, name=check.name, daemon=True).start()

    def findings(self) -> Iterator[Finding]:
        given = 0
        while True:
            with self._changed:
                while len(self._found) == given and not self._ended:
                    left = self._deadline - time.monotonic()
                    if left <= 0 or not self._changed.wait(left):
                        yield self._hangs()
                        return
                new = self._found[given:]
            if not new:
                return
            yield from new
            given += len(new)

    def _look(self) -> None:
        try:
            for finding in self._check.look():
                self._add(finding)
        except Unusable as error:
            self._add(fault(self._check.name, error.found, error.cure))
        except JobsError as error:
            self._add(fault(self._check.name, str(error), self._check.advice))
        except Exception as error:
            said = f"the check itself failed: {type(error).__name__}: {error}"
            self._add(fault(self._check.name, said, "this is a bug of pagemill; please report it"))
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify()

    def _add(self, finding: Finding) -> None:
        with self._changed:
            self._found.append(finding)
            self._changed.notify()

    def _hangs(self) -> Finding:
        check = self._check
        return fault(check.name, f"no answer within {check.seconds:g} s", check.advice)
