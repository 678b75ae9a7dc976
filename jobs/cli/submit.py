"""`pagemill submit`."""

from __future__ import annotations

from jobs.cli.console import note
from jobs.cli.deployment import opened
from jobs.cli.options import SubmitOptions, with_groups
from jobs.cli.submitting import submit_job
from jobs.cli.worker import worker_hint


@with_groups
def submit(options: SubmitOptions) -> None:
    """Queue a file of prompts, and print the id of the job.

    Nothing else goes to stdout.

    \b
    Examples:
      pagemill submit prompts.jsonl --model smollm2-135m
      pagemill submit reviews.parquet --model ./llama --prompt-column review
      zcat big.jsonl.gz | pagemill submit - --model smollm2-135m --deadline 8h
    """
    with opened(create=True) as deployment:
        job = submit_job(deployment, options)
    print(job.id, flush=True)
    note(f"answer it:  {worker_hint(job)}")
    note(f"watch it:   pagemill status {job.id} --watch")
    note(f"read it:    pagemill results {job.id} -o answers.parquet")
