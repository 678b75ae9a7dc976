"""How `wait` shows how far a job is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.api.opening import log

if TYPE_CHECKING:
    from jobs.cli.progress import Display
    from jobs.records import JobProgress

_BAR_WIDTH = 30


@dataclass(frozen=True, slots=True)
class Watcher:
    """Whom a job is shown to while it goes on.

    Attributes:
        tell: takes what has to be said meanwhile.
    """

    show: Display
    tell: Callable[[str], None] = log.warning


@contextmanager
def watching(progress: bool) -> Iterator[Watcher]:
    """A bar on stderr in terminals and notebooks; nothing where nobody looks."""
    from rich.console import Console

    from jobs.cli.progress import progress_display

    if progress and Console().is_jupyter:
        bar = _NotebookBar()
        try:
            yield Watcher(bar.show, bar.tell)
        finally:
            bar.close()
    elif progress and sys.stderr.isatty():
        with progress_display() as display:
            yield Watcher(display)
    else:
        yield Watcher(lambda _: None)


class _NotebookBar:
    """One line that is written over again.

    rich's own display for notebooks needs a package of widgets; this needs none, and is kept as
    text where a notebook is saved.
    """

    def __init__(self) -> None:
        from jobs.cli.progress import Pace, Speed

        self._speed, self._pace = Speed(), Pace()
        self._said = ""

    def show(self, progress: JobProgress) -> None:
        from jobs.cli.console import visible
        from jobs.cli.progress import progress_line

        bar = _drawn(progress.counts.rows, progress.job.total_rows)
        pace = self._speed.of(progress), self._pace.left(progress)
        line = visible(f"{bar}  {progress_line(progress, *pace)}")
        if line != self._said:
            print(f"\r{line:<{len(self._said)}}", end="", file=sys.stderr, flush=True)
            self._said = line

    def tell(self, sentence: str) -> None:
        """Log a sentence on a line of its own."""
        self.close()
        log.warning(sentence)

    def close(self) -> None:
        if self._said:
            print(file=sys.stderr, flush=True)
        self._said = ""


def _drawn(done: int, total: int) -> str:
    """A bar of rich as text."""
    from rich.console import Console
    from rich.progress_bar import ProgressBar

    console = Console(width=_BAR_WIDTH, color_system=None, force_jupyter=False)
    with console.capture() as captured:
        console.print(ProgressBar(max(1, total), done, width=_BAR_WIDTH), end="")
    return f"{captured.get().rstrip():<{_BAR_WIDTH}}"
