"""`pagemill status`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.cli.console import detached, note, say
from jobs.cli.deployment import opened
from jobs.cli.device_use import device_use
from jobs.cli.notifications import fate
from jobs.cli.options import JobId, Json
from jobs.cli.panel import panel_display
from jobs.cli.progress import Display
from jobs.cli.shapes import cached_share, free_slot, output_path, progress_json, shown_state
from jobs.cli.watching import follow
from jobs.cli.why_it_waits import no_worker, telling_why_it_waits
from jobs.ctrl_c import INTERRUPTED
from jobs.shown_urls import shown_webhook

if TYPE_CHECKING:
    from jobs.records import JobProgress
    from jobs.storage import Storage

_NAME_WIDTH = len("completion tokens")


def status(
    job_id: JobId,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Follow the job until it has ended.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show where a job stands. With --watch --json, a line of JSON for each change.

    On a terminal, --watch draws a panel: rows, tokens/s, time left, chunks, and of each worker its
    KV use and preemptions. Ctrl-C ends the watching (130), not the job.

    \b
    Examples:
      pagemill status job_abcdefgh --watch
      pagemill status job_abcdefgh --json | jq .rows
    """
    with opened() as deployment:
        store, storage = deployment.store, deployment.storage
        progress = store.progress(job_id)
        job_id = progress.job.id
        if watch and not progress.job.state.terminal:
            try:
                if as_json:
                    follow(deployment, job_id, _json_lines(storage))
                    return
                with panel_display(deployment) as display:
                    display = telling_why_it_waits(deployment, display)
                    progress = follow(deployment, job_id, display) or progress
            except KeyboardInterrupt:
                json_too = " --json" if as_json else ""
                note(detached(f"job {job_id}", f"pagemill status {job_id} --watch{json_too}"))
                raise typer.Exit(INTERRUPTED) from None
        if as_json:
            print(json.dumps(progress_json(progress, storage)))
        else:
            say(_described(progress, storage, no_worker(deployment, progress)))


def tells(progress: JobProgress) -> list[str]:
    """The URLs that are told the end, and what became of it: `https://host/***: delivered`."""
    if not progress.notifications:
        return [f"{shown_webhook(url)}, once it has ended" for url in progress.job.notify_urls]
    return [f"{shown_webhook(told.url)}: {fate(told)}" for told in progress.notifications]


def _json_lines(storage: Storage) -> Display:
    said = ""

    def show(progress: JobProgress) -> None:
        nonlocal said
        line = json.dumps(progress_json(progress, storage))
        if line != said:
            print(line, flush=True)
            said = line

    return show


def _described(progress: JobProgress, storage: Storage, trouble: str | None) -> str:
    """Lines that are never cut or wrapped, so that paths can be copied.

    Args:
        trouble: what is wrong with the workers.
    """
    job, counts = progress.job, progress.counts
    lines: list[str] = []

    def line(name: str, value: object) -> None:
        if value is not None:
            lines.append(f"{name:<{_NAME_WIDTH}}  {str(value).replace(chr(10), ' ')}")

    line("job", job.id)
    line("name", job.name)
    line("state", shown_state(job))
    line("stopped because", job.stop_reason)
    line("waits for", job.waiting_for or free_slot(progress))
    line("error", job.error_message and f"{job.error_message} [{job.error_code}]")
    line("model", job.model)
    line("input", job.input_uri)
    line("rows", f"{counts.rows:,} of {job.total_rows:,} done")
    line("  answered", f"{counts.completed:,}")
    for name in ("failed", "cancelled", "expired"):
        number = getattr(counts, name)
        line(f"  {name}", f"{number:,}" if number else None)
    cached = f" ({cached_share(counts):.0%} from the prefix cache)" if counts.cached_tokens else ""
    line("prompt tokens", f"{counts.prompt_tokens:,}{cached}")
    line("completion tokens", f"{counts.completion_tokens:,}")
    if used := device_use(counts, progress.device):
        name, seconds, pace = used
        line(name, f"{seconds}; {pace}")
    line(
        "chunks",
        f"{progress.chunks_done:,} of {job.chunks_total:,} done, "
        f"{progress.chunks_running:,} running",
    )
    if not job.state.terminal:
        starts = "" if progress.starting is None else f", starting: {progress.starting}"
        line("workers", trouble or f"{progress.workers_alive:,} alive{starts}")
    line("version", f"{job.version} (published: {job.published_version or 'none yet'})")
    line("output", output_path(job, storage))
    for told in tells(progress):
        line("tells", told)
    for name in ("created", "started", "finished", "deadline", "paused"):
        moment = getattr(job, f"{name}_at")
        line(name, moment and moment.astimezone().isoformat(" ", "seconds"))
    return "\n".join(lines)
