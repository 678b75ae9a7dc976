"""What only rows and jobs of some kinds may ask for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from jobs.errors import RowError, UsageError
from jobs.kinds import JobKind

if TYPE_CHECKING:
    from jobs.submission import Submission

POOLINGS = ("last", "mean")


def check_row_of_kind(kind: JobKind, names: Iterable[str], is_chat: bool, prefix: str) -> None:
    """Refuse what has no meaning in a job of that kind.

    Args:
        names: of what the row asks of its answer: sampling parameters, and what it has to be.
        prefix: `body.` for a row in the body of a batch line.

    Raises:
        RowError: `unsupported_parameter`, or `not_a_text` for a chat that cannot be embedded.
    """
    if kind is JobKind.GENERATE:
        return
    for name in names:
        raise RowError(
            "unsupported_parameter",
            f"{prefix}{name} means nothing in a job of the kind {kind}, which samples no tokens; "
            "leave it out",
            f"{prefix}{name}",
        )
    if kind is JobKind.EMBED and is_chat:
        raise RowError(
            "not_a_text",
            "a job of the kind embed takes texts, not chats; give the row's text as prompt",
            f"{prefix}messages",
        )


def check_job_of_kind(submission: Submission) -> None:
    """Refuse options that have no meaning in a job of that kind.

    Raises:
        UsageError: an option cannot work, or would change nothing.
    """
    kind = submission.kind
    if submission.pooling not in POOLINGS:
        raise UsageError(f"--pooling is {submission.pooling}; it must be last or mean")
    if kind is not JobKind.EMBED and (submission.pooling != "last" or not submission.normalize):
        raise UsageError(f"--pooling and --no-normalize are for --kind embed; this job's is {kind}")
    if kind is JobKind.GENERATE:
        return
    given = next((name for name, v in submission.sampling.items() if v is not None), None)
    if given is not None:
        raise UsageError(
            f"--{given.replace('_', '-')} means nothing with --kind {kind}, which samples no "
            "tokens; leave it out"
        )
    if kind is JobKind.EMBED and submission.system is not None:
        raise UsageError(
            "--system is for chats, and --kind embed takes texts; leave one of them out"
        )
