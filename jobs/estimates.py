"""How much a job would be, without submitting it.

The input is read and normalized as by a submit, into a temporary folder; another process, which
has the tokenizer, counts what is in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jobs.children import events_of, program
from jobs.errors import ChildFailed, UsageError
from jobs.scratch import scratch_folder
from jobs.storage import Storage

if TYPE_CHECKING:
    from jobs.records import NewJob
    from jobs.submission import Progress, Submission

_SHOWN_ERRORS = 3
# What is in proportion to the rows.
_SUMS = ("rows", "refused", "shared_tokens", "completion_tokens", "cut_short")


def estimate(
    submission: Submission,
    arguments: Sequence[str],
    *,
    max_unpacked: int,
    sample: int | None = None,
    reading: Callable[[Progress], None] | None = None,
    counting: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Count a job's rows and tokens, and what they need; nothing is left behind.

    Args:
        arguments: of the worker that would answer it.
        max_unpacked: see `jobs.submission.prepare`.
        sample: tokenize only so many rows, or a few more, and reckon from these.
        reading: told how far the reading is.
        counting: told how many rows are tokenized, and how many will be.

    Raises:
        JobsError: the input or the options are refused, or the model is not here.
    """
    from jobs.submission import prepare

    if sample is not None and sample < 1:
        raise UsageError(f"--sample is {sample}; it must be 1 or more")
    with scratch_folder() as root:
        storage = Storage(str(root))
        new = prepare(submission, storage, reading, max_unpacked=max_unpacked)
        chunks = _chosen([chunk.rows for chunk in new.plan.chunks], sample)
        request = {
            "arguments": list(arguments),
            "root": str(root),
            "folder": str(storage.job(new.folder).path),
            "input_path": new.plan.input_path,
            "chunks": chunks,
            "options": new.options,
            "seed": new.seed,
        }
        found = _counted(request, counting)
        return _whole(found, new, storage, sum(rows for _, rows in chunks))


def _chosen(rows: Sequence[int], sample: int | None) -> list[tuple[int, int]]:
    """The chunks that are counted, with the rows of each: all, or some from everywhere.

    Whole chunks, since their rows share prefixes with one another more than with others.
    """
    everything = list(enumerate(rows))
    if sample is None or sample >= sum(rows):
        return everything
    number = min(len(rows), -(-sample // max(rows)))
    while True:
        chosen = [everything[i * len(rows) // number] for i in range(number)]
        if sum(size for _, size in chosen) >= sample:
            return chosen
        number += 1


def _counted(
    request: dict[str, Any], counting: Callable[[int, int], None] | None
) -> dict[str, Any]:
    total = 0
    with contextlib.closing(events_of(program("worker.estimate"), request)) as events:
        for name, told in events:
            if name == "estimate":
                return told
            total = told["rows"] if name == "begun" else total
            if counting is not None:
                counting(0 if name == "begun" else told["rows"], total)
    raise ChildFailed("the process that counts tokens ended without a result")


def _whole(found: dict[str, Any], new: NewJob, storage: Storage, looked_at: int) -> dict[str, Any]:
    """What was counted, with the rows that were refused while reading, and for all rows."""
    plan = new.plan
    answerable = plan.total_rows - plan.rejected
    codes: dict[str, int] = found.pop("codes")
    if looked_at < answerable:
        codes = {code: rows * answerable // looked_at for code, rows in codes.items()}
        for name in _SUMS:
            found[name] = found[name] * answerable // looked_at
        found["prompt_tokens"]["total"] = found["prompt_tokens"]["total"] * answerable // looked_at
    for tally in plan.rejected_errors:
        codes[tally.code] = codes.get(tally.code, 0) + tally.rows
    errors = [*_refused_at_once(new, storage), *found.pop("errors")]
    rows = {
        "total": plan.total_rows,
        "good": found.pop("rows"),
        "refused": plan.rejected + found.pop("refused"),
        "codes": dict(sorted(codes.items())),
        "errors": sorted(errors, key=lambda error: error["line"])[:_SHOWN_ERRORS],
    }
    return {"rows": rows, "sampled_rows": looked_at if looked_at < answerable else None, **found}


def _refused_at_once(new: NewJob, storage: Storage) -> list[dict[str, Any]]:
    """The first rows that reading refused."""
    from jobs.parts import read_batches

    folder = storage.job(new.folder)
    found: list[dict[str, Any]] = []
    for window in new.plan.windows:
        if window.rejected is None:
            continue
        for batch in read_batches(folder, window.rejected):
            for error in batch.column("error").to_pylist():
                found.append({name: error[name] for name in ("line", "code", "message")})
                if len(found) == _SHOWN_ERRORS:
                    return found
    return found
