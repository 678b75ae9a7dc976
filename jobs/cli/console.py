"""What people read: results on stdout, hints and progress on stderr."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_UNLIMITED = 10_000
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
# Control characters (C0 but tab and line break, DEL, C1), which a terminal would obey, and
# surrogates, which have no UTF-8. And what turns the direction of writing round (Boucher and
# Anderson, "Trojan Source", 2021, arXiv:2111.00169): the rest of a line would read as another one.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def note(sentence: str) -> None:
    """A hint; it never mixes with the results on stdout."""
    print(visible(sentence), file=sys.stderr, flush=True)


def detached(who: str, again: str, end: str | None = None) -> str:
    """What goes on after Ctrl-C, with the commands to look at it again, and to end it."""
    lines = [f"Detached; {who} goes on", f"look again:  {again}"]
    if end is not None:
        lines.append(f"end it:      {end}")
    return "\n".join(lines)


def say(line: str) -> None:
    """A line of results for people."""
    print(visible(line))


def visible(text: str) -> str:
    """Text that may go to a terminal: U+FFFD stands for what the terminal would obey.

    Answers, names and messages hold whatever a model or a file held, escape sequences too.
    """
    return _UNPRINTABLE.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Any run of white space becomes one space."""
    return " ".join(text.split())


def console(stream: TextIO) -> Console:
    """A console that takes text as it is: no markup, no highlights, colours on terminals only.

    Where the output is no terminal, nothing is cut or wrapped.
    """
    from rich.console import Console

    class Ours(Console):
        def on_broken_pipe(self) -> None:
            raise  # rich would exit; `jobs.cli.group` does it for all of us

        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(visible(text), **options)

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


def squeezable(text: str) -> Text:
    """A cell that is cut where there is no room, rather than wrapped."""
    from rich.text import Text

    return Text(visible(text), no_wrap=True, overflow="ellipsis")


def packed(parts: Iterable[str], width: int) -> list[str]:
    """Parts with two spaces between them, in as few lines of that width as hold them whole."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 2 + len(part) <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(part)
    return lines


def keep_whole(made: Table, *names: str) -> None:
    """Neither cut nor wrap these columns of a table that has all its rows."""
    for column in made.columns:
        if column.header in names:
            column.no_wrap = True
            column.min_width = max(len(str(cell)) for cell in (column.header, *column.cells))


def plural(number: int, noun: str) -> str:
    """`1 row`, `2 rows`, `12,345 rows`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(number: int) -> str:
    """`512 B`, `45.0 KiB`, `1.25 GiB`."""
    amount, unit = float(number), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    digits = 0 if unit == 0 else 1 if unit < 3 else 2
    return f"{amount:,.{digits}f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """`2.7 s`, `27 s`, `3 min 5 s`, `2 h 7 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"
