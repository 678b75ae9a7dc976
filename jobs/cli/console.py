"""What people read: results on stdout, hints and progress on stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_UNLIMITED = 10_000


def note(sentence: str) -> None:
    """A hint; it never mixes with the results on stdout."""
    print(sentence, file=sys.stderr, flush=True)


def console(stream: TextIO) -> Console:
    """A console that takes text as it is: no markup, no highlights, colours on terminals only.

    Where the output is no terminal, nothing is cut or wrapped.
    """
    from rich.console import Console

    class Ours(Console):
        def on_broken_pipe(self) -> None:
            raise  # rich would exit; `jobs.cli.group` does it for all of us

    width = None if stream.isatty() else _UNLIMITED
    return Ours(file=stream, markup=False, highlight=False, emoji=False, width=width)


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A plain table; columns in `right` are aligned to the right."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left")
    return made


def show(made: Table) -> None:
    console(sys.stdout).print(made)


def plural(number: int, noun: str) -> str:
    """`1 row`, `2 rows`, `12,345 rows`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
