"""`pagemill submit`."""

from __future__ import annotations

from jobs.cli.console import note
from jobs.cli.deployment import opened
from jobs.cli.options import Json, SubmitOptions, with_groups
from jobs.cli.shapes import print_status
from jobs.cli.submitting import submit_job
from jobs.cli.worker import worker_hint


@with_groups
def submit(options: SubmitOptions, as_json: Json = False) -> None:
    """Queue a file of prompts, and print the id of the job.

    Nothing else goes to stdout. With --json it is the job as `status --json` prints it: how many
    rows there are, and how many were refused.

    \b
    Examples:
      pagemill submit prompts.jsonl --model smollm2-135m
      pagemill submit reviews.parquet --model ./llama --prompt-column review
      zcat big.jsonl.gz | pagemill submit - --model smollm2-135m --deadline 8h
      pagemill submit prompts.jsonl --model smollm2-135m --json | jq .rows.failed
    """
    with opened(create=True) as deployment:
        job = submit_job(deployment, options)
        if as_json:
            print_status(deployment, job.id)
        else:
            print(job.id, flush=True)
    note(f"answer it:  {worker_hint(job)}")
    note(f"watch it:   pagemill status {job.id} --watch")
    note(f"read it:    pagemill results {job.id} -o answers.parquet")
