"""From an input file to a job that can be queued: validated, planned, normalized."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from jobs import layout
from jobs.errors import InputError
from jobs.fingerprint import input_digests, job_fingerprint, seed_of_key
from jobs.ids import new_id
from jobs.job_folder import JobFolder
from jobs.job_options import check_options, check_sampling
from jobs.kinds import JobKind
from jobs.normalize import VERSION, NormalizedWriter
from jobs.parameters import MAX_SEED
from jobs.parquet_files import open_parquet
from jobs.reading.blocks import Block, Reader
from jobs.reading.custom_ids import CustomIds
from jobs.reading.opening import open_input
from jobs.reading.sources import STDIN, Source
from jobs.reading.unpacking import MAX_UNPACKED_BYTES
from jobs.records import NewJob, Plan, RowErrorInfo
from jobs.shown_urls import shown_input
from jobs.storage import Storage

MAX_ROWS = 100_000_000  # of an input
SHOWN_ERRORS = 5


@dataclass(frozen=True, slots=True)
class Submission:
    """What a person asked for.

    Attributes:
        input: path, URI, or `-` for stdin; or rows that are no file, under a name.
        sampling: defaults for all rows; a row's own parameters win.
        chat_template_kwargs: variables for the chat template of all chats; a row's own win.
        served_model_names: what else rows of OpenAI batch files may call the model.
        system: system message of rows that have none.
        template: text of a Jinja template that makes the prompt of a row's columns.
        prompt_column: the key or column that is the prompt.
        limit: take only the first rows.
        seed: seed of the job, 0 to 2**63 - 1; drawn at random where None.
        deadline_at: with a time zone.
        row_timeout: seconds that a row may take from when an engine begins it; None for no limit.
        strict: refuse the whole input for one bad row.
        chunk_rows: rows of a chunk, 1 to 256.
        input_format: `jsonl` or `parquet`; None: by name and content.
        idempotency_key: of all submissions with it one becomes a job.
        kind: what is done with the rows.
        pooling: of embeddings, `last` or `mean`.
        normalize: scale embeddings to the length 1.
        notify_urls: where the end of the job is told.
    """

    input: str | Source
    model: str
    name: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    served_model_names: Sequence[str] = ()
    system: str | None = None
    template: str | None = None
    prompt_column: str | None = None
    limit: int | None = None
    seed: int | None = None
    priority: int = 0
    deadline_at: datetime | None = None
    row_timeout: float | None = None
    strict: bool = False
    chunk_rows: int = 128
    input_format: str | None = None
    idempotency_key: str | None = None
    kind: JobKind = JobKind.GENERATE
    pooling: str = "last"
    normalize: bool = True
    notify_urls: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the reading is.

    Attributes:
        bytes_read: of the input as stored, about.
        total_bytes: None where it is not known.
    """

    rows: int
    rejected: int
    bytes_read: int
    total_bytes: int | None


def prepare(
    submission: Submission,
    storage: Storage,
    progress: Callable[[Progress], None] | None = None,
    *,
    in_use: bool = False,
    max_unpacked: int = MAX_UNPACKED_BYTES,
) -> NewJob:
    """Read the input once, and write the job's folder; SQL is not touched.

    If anything fails, or the process is interrupted, the folder is removed.

    Args:
        in_use: there are jobs in the storage already, so it has to be there.
        max_unpacked: bytes that the input may have unpacked, unless it is large as it is.

    Raises:
        UsageError: options that cannot work.
        InputError: the input is refused as a whole.
        StorageError: the job's folder cannot be written.
    """
    sampling = check_sampling(submission.sampling)
    rules = replace(check_options(submission), sampling=sampling)
    job_id = new_job_id()
    folder = storage.job(job_id)
    try:
        with open_input(
            submission.input, rules, submission.input_format, max_unpacked=max_unpacked
        ) as reader:
            storage.new_job(job_id, in_use=in_use)
            plan = _normalize(submission, reader, folder, progress)
        return _new_job(submission, job_id, sampling, plan, input_digests(folder, plan))
    except BaseException:
        folder.remove_all()
        raise


def _new_job(
    submission: Submission, job_id: str, sampling: Mapping[str, Any], plan: Plan, digests: list[str]
) -> NewJob:
    options = {
        "sampling": sampling,
        "chat_template_kwargs": dict(submission.chat_template_kwargs),
        "served_model_names": list(submission.served_model_names),
        "system": submission.system,
        "template": submission.template,
        "prompt_column": submission.prompt_column,
        "limit": submission.limit,
        "row_timeout": submission.row_timeout,
        "chunk_rows": submission.chunk_rows,
        **_options_of_kind(submission),
    }
    seed = _seed(submission)
    return NewJob(
        id=job_id,
        name=submission.name,
        model=submission.model,
        input_uri=_uri(submission.input),
        folder=job_id,
        options=options,
        seed=seed,
        priority=submission.priority,
        deadline_at=submission.deadline_at,
        plan=plan,
        fingerprint=job_fingerprint(submission.model, options, seed, digests),
        idempotency_key=submission.idempotency_key,
        notify_urls=tuple(submission.notify_urls),
    )


def _options_of_kind(submission: Submission) -> dict[str, Any]:
    if submission.kind is JobKind.GENERATE:
        return {}
    options: dict[str, Any] = {"kind": submission.kind.value}
    if submission.kind is JobKind.EMBED:
        options |= {"pooling": submission.pooling, "normalize": submission.normalize}
    return options


def _seed(submission: Submission) -> int:
    if submission.seed is not None:
        return submission.seed
    if submission.idempotency_key is not None:
        return seed_of_key(submission.idempotency_key)
    return secrets.randbelow(MAX_SEED + 1)


def new_job_id() -> str:
    return new_id("job")


def _uri(given: str | Source) -> str:
    if isinstance(given, Source):
        return given.name
    if given == STDIN or "://" in given:
        return shown_input(given)
    return str(Path(given).expanduser().absolute())


def _normalize(
    submission: Submission,
    reader: Reader,
    folder: JobFolder,
    progress: Callable[[Progress], None] | None,
) -> Plan:
    errors: list[RowErrorInfo] = []
    ids = CustomIds()
    with (
        folder.create(layout.input_copy(VERSION)) as file,
        NormalizedWriter(
            file,
            folder,
            carried=reader.carried,
            model=submission.model,
            chunk_rows=submission.chunk_rows,
            kind=submission.kind,
        ) as writer,
    ):
        rows = rejected = 0
        for block in _limited(reader.blocks(), submission.limit):
            for row in block.rows:
                if row.custom_id is not None:
                    ids.add(row.custom_id, row.line)
                if row.error is not None:
                    rejected += 1
                    if len(errors) < SHOWN_ERRORS:
                        errors.append(row.error)
            rows += len(block.rows)
            if rows > MAX_ROWS:
                raise InputError(
                    f"{reader.name} has over {MAX_ROWS:,} rows; cut it into several files"
                )
            if submission.strict and len(errors) == SHOWN_ERRORS:
                break
            writer.add(block)
            if progress is not None:
                progress(Progress(rows, rejected, reader.position, reader.size))
        _check_rows(reader, rows, rejected, errors, submission.strict)
        plan = writer.finish()
        if submission.chat_template_kwargs and not writer.has_chats:
            raise InputError(
                f"{reader.name} has no chats, so --chat-template-kwargs would reach no row; "
                "leave it out, or give messages"
            )
    _check_custom_ids(reader, ids, folder, plan)
    return plan


def _limited(blocks: Iterator[Block], limit: int | None) -> Iterator[Block]:
    left = limit
    for block in blocks:
        if left is not None:
            block = block.slice(0, left)
            left -= len(block.rows)
        yield block
        if left == 0:
            return


def _check_rows(
    reader: Reader, rows: int, rejected: int, errors: list[RowErrorInfo], strict: bool
) -> None:
    if rows == 0:
        raise InputError(f"{reader.name} has no rows")
    listed = reasons(errors, reader.unit)
    if strict and rejected:
        raise InputError(
            f"{reader.name} has rows that cannot be answered; mend them, or submit without "
            f"--strict to have them as error rows.{reader.hint()}{listed}"
        )
    if rejected == rows:
        raise InputError(f"no row of {reader.name} can be answered.{reader.hint()}{listed}")


def reasons(errors: Iterable[RowErrorInfo], where: str) -> str:
    """Why rows are refused, a line each; `where` stands before the number of the line."""
    return "".join(f"\n  {where} {e.line}: {e.message} [{e.code}]" for e in errors)


def _check_custom_ids(reader: Reader, ids: CustomIds, folder: JobFolder, plan: Plan) -> None:
    suspects = ids.suspects()
    if not suspects:
        return
    found = CustomIds.duplicate(suspects, _custom_ids(folder, plan))
    if found is not None:
        custom_id, first, second = found
        raise InputError(
            f"{reader.name}: custom_id {custom_id!r} is used twice, in {reader.unit}s {first} "
            f"and {second}; every row needs an id of its own, or none"
        )


def _custom_ids(folder: JobFolder, plan: Plan) -> Iterator[tuple[str | None, int]]:
    """Every custom id of the job with its line, as it was written."""
    with open_parquet(folder, plan.input_path) as file:
        for batch in file.iter_batches(columns=["custom_id", "line"]):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
    for window in plan.windows:
        if window.rejected is not None:
            with open_parquet(folder, window.rejected) as file:
                table = file.read(columns=["custom_id", "error"])
            for row in table.to_pylist():
                yield row["custom_id"], row["error"]["line"]
