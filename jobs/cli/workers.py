"""`pagemill workers`."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jobs.cli.console import (
    console,
    duration,
    note,
    one_line,
    say,
    show,
    squeezable,
    table,
)
from jobs.cli.deployment import opened
from jobs.cli.options import Json

if TYPE_CHECKING:
    from rich.table import Table

    from jobs.records import WorkerRecord

LOST = "lost"  # a worker that fell silent without a word
_LEAST = {"worker": 24, "model": 10}  # characters of columns that are cut where there is no room
_GAP = 2


def workers(
    departed: Annotated[
        bool, typer.Option("--all", help="Those that left or were lost in the last week, too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the workers that are alive, and how busy they are.

    A narrow terminal gets fewer columns.

    \b
    Examples:
      pagemill workers --all
      pagemill workers --json | jq 'map(.tokens_per_second) | add'
    """
    with opened() as deployment:
        found = deployment.store.workers(all=departed)
        now = deployment.store.now()
    if as_json:
        print(json.dumps([_worker_json(worker) for worker in found]))
        return
    if not found:
        note(
            "no workers in the last week"
            if departed
            else "no worker is alive; `pagemill worker --model MODEL` starts one"
        )
        return
    show(workers_table(found, now, console(sys.stdout).width, _COLUMNS))
    for worker in found:
        if worker.status.message:
            say(f"{worker.id}: {one_line(worker.status.message)}")


def shown_state(worker: WorkerRecord) -> str:
    """What it last said, unless it fell silent after that."""
    said = worker.status.state
    return said if worker.alive or said in ("failed", "stopped") else LOST


def _worker_json(worker: WorkerRecord) -> dict[str, Any]:
    values = dataclasses.asdict(worker)
    values |= values.pop("status")
    values["state"] = shown_state(worker)
    for name in ("started_at", "seen_at"):
        values[name] = values.pop(name).isoformat()
    return values


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table.

    Attributes:
        cell: text for a worker at a moment.
        spare: where there is no room, the column with the highest number leaves first; 0 stays.
        live: what it says of a worker that is not alive is no longer true.
    """

    header: str
    cell: Callable[[WorkerRecord, datetime], str]
    spare: int = 0
    live: bool = False
    right: bool = True

    def text(self, worker: WorkerRecord, now: datetime) -> str:
        return "" if self.live and not worker.alive else self.cell(worker, now)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else ""


def _age(worker: WorkerRecord, now: datetime) -> str:
    end = now if worker.alive else worker.seen_at
    return duration((end - worker.started_at).total_seconds())


_COLUMNS = (
    Column("worker", lambda w, _: w.id, right=False),
    Column("model", lambda w, _: w.model, right=False),
    Column("state", lambda w, _: shown_state(w), right=False),
    Column("device", lambda w, _: w.status.device or "", spare=5, right=False),
    Column("chunks", lambda w, _: f"{w.status.chunks_held}/{w.concurrency}", spare=1, live=True),
    Column("run/wait", lambda w, _: f"{w.status.running}/{w.status.waiting}", live=True),
    Column("KV", lambda w, _: _share(w.status.blocks_used, w.status.blocks_total), live=True),
    Column("tok/s", lambda w, _: f"{w.status.tokens_per_second:,.0f}", live=True),
    Column("cached", lambda w, _: _share(w.status.cached_tokens, w.status.prompt_tokens), spare=3),
    Column("rows", lambda w, _: f"{w.status.rows_completed:,}", spare=2),
    Column("errors", lambda w, _: f"{w.status.rows_failed:,}", spare=6),
    Column("up", _age, spare=4),
    Column("seen", lambda w, now: duration(max(0.0, (now - w.seen_at).total_seconds()))),
)


# What a job's panel tells of the workers of its model.
PANEL_COLUMNS = (
    *(column for column in _COLUMNS if column.header in ("worker", "state", "chunks")),
    *(column for column in _COLUMNS if column.header in ("run/wait", "KV", "tok/s", "cached")),
    Column("preempted", lambda w, _: f"{w.status.preemptions:,}", spare=2),
)


def workers_table(
    found: Sequence[WorkerRecord], now: datetime, width: int, all_columns: Sequence[Column]
) -> Table:
    """A table that is as wide as there is room for; columns that do not fit are left out."""
    columns = list(all_columns)
    whole = {
        column.header: max(map(len, (column.header, *(column.text(w, now) for w in found))))
        for column in columns
    }
    least = {name: min(size, _LEAST.get(name, size)) for name, size in whole.items()}

    def room() -> int:
        """What is left beside the columns at their least width."""
        return width - sum(least[c.header] for c in columns) - _GAP * (len(columns) - 1)

    while room() < 0 and (spare := max(columns, key=lambda column: column.spare)).spare:
        columns.remove(spare)
    shown = table(*(c.header for c in columns), right=tuple(c.header for c in columns if c.right))
    for worker in found:
        shown.add_row(*(squeezable(column.text(worker, now)) for column in columns))
    for made in shown.columns:
        name = str(made.header)
        least[name] = made.width = min(whole[name], least[name] + max(0, room()))
    return shown
