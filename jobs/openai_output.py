"""Output rows as the lines of an OpenAI batch's output file.

https://platform.openai.com/docs/api-reference/batch/request-output says what such a line is.
A row's own data (its carried columns) has no place in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pyarrow as pa

from jobs.errors import UsageError
from jobs.json_rows import json_line, rows_as_json
from jobs.kinds import JobKind, kind_of_job
from jobs.records import JobRecord
from jobs.schema import COMPLETION, EMBEDDINGS

COLUMNS = [
    "row_index", "custom_id", "text", "finish_reason", "prompt_tokens", "cached_tokens",
    "completion_tokens", "error", "model", "endpoint", "choices", "logprobs",
]  # fmt: skip
_EMBEDDING_COLUMNS = [
    "row_index", "custom_id", "prompt_tokens", "error", "model", "endpoint", "embedding",
]  # fmt: skip
LEAST_LOGPROB = -9999.0  # OpenAI's word for "very unlikely"; JSON has no infinity


def columns_for(job: JobRecord) -> list[str]:
    """The columns of which a line is made.

    Raises:
        UsageError: OpenAI has no such answers.
    """
    kind = kind_of_job(job.options)
    if kind is JobKind.SCORE:
        raise UsageError(
            f"job {job.id} holds scores, for which OpenAI's batch output has no form; take "
            "--format jsonl or parquet"
        )
    return _EMBEDDING_COLUMNS if kind is JobKind.EMBED else COLUMNS


def openai_lines(table: pa.Table, job: JobRecord, version: int) -> Iterator[bytes]:
    """One JSON object a row, each with its line break.

    Ids and times depend on the job, the version and the row alone, so that a version reads the
    same each time.

    Args:
        table: output rows with at least `columns_for` the job.
    """
    created = int(job.created_at.timestamp())
    for row in rows_as_json(table.select(columns_for(job))):
        name = f"{job.id.removeprefix('job_')}-v{version}-{row['row_index']}"
        yield json_line(_line(row, name, created))


def _line(row: dict[str, Any], name: str, created: int) -> dict[str, Any]:
    response = None
    if row["error"] is None:
        body = _BODIES.get(row["endpoint"], _chat)(row, name, created)
        response = {"status_code": 200, "request_id": f"req_{name}", "body": body}
    line_id = f"batch_req_{name}"
    return {
        "id": line_id,
        "custom_id": row["custom_id"] or line_id,  # no other row's: the job's id is in it
        "response": response,
        "error": _error(row["error"]),
    }


def _error(error: dict[str, Any] | None) -> dict[str, Any] | None:
    if error is None:
        return None
    where = {"line": error["line"], "param": error["field"]}
    return {
        "code": error["code"],
        "message": error["message"],
        **{name: value for name, value in where.items() if value is not None},
    }


def _chat(row: dict[str, Any], name: str, created: int) -> dict[str, Any]:
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": choice["text"], "refusal": None},
            "logprobs": _chat_logprobs(choice["logprobs"]),
            "finish_reason": choice["finish_reason"],
        }
        for index, choice in enumerate(_choices(row))
    ]
    return _body(row, f"chatcmpl-{name}", "chat.completion", created, choices)


def _completion(row: dict[str, Any], name: str, created: int) -> dict[str, Any]:
    choices = [
        {
            "index": index,
            "text": choice["text"],
            "logprobs": _completion_logprobs(choice["text"], choice["logprobs"]),
            "finish_reason": choice["finish_reason"],
        }
        for index, choice in enumerate(_choices(row))
    ]
    return _body(row, f"cmpl-{name}", "text_completion", created, choices)


def _embeddings(row: dict[str, Any], name: str, created: int) -> dict[str, Any]:
    tokens = row["prompt_tokens"]
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": row["embedding"]}],
        "model": row["model"],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


_BODIES = {COMPLETION: _completion, EMBEDDINGS: _embeddings}


def _choices(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A row of one answer is itself the only choice."""
    choices: list[dict[str, Any]] = [row] if row["choices"] is None else row["choices"]
    return choices


def _body(
    row: dict[str, Any], answer_id: str, kind: str, created: int, choices: list[dict[str, Any]]
) -> dict[str, Any]:
    prompt, completion = row["prompt_tokens"], row["completion_tokens"]
    return {
        "id": answer_id,
        "object": kind,
        "created": created,
        "model": row["model"],
        "choices": choices,
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": row["cached_tokens"]},
        },
        "system_fingerprint": None,
    }


def _chat_logprobs(tokens: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    if tokens is None:
        return None
    content = [
        {
            "token": token["token"],
            "logprob": _logprob(token),
            "bytes": token["bytes"],
            "top_logprobs": [
                {"token": top["token"], "logprob": _logprob(top), "bytes": _bytes(top, token)}
                for top in token["top"]
            ],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _completion_logprobs(text: str, tokens: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    if tokens is None:
        return None
    return {
        "tokens": [token["token"] for token in tokens],
        "token_logprobs": [_logprob(token) for token in tokens],
        # The chosen token is always among them, as in OpenAI's answers. Of tokens that read the
        # same (such as parts of characters) the likeliest counts.
        "top_logprobs": [
            {t["token"]: _logprob(t) for t in sorted([token, *token["top"]], key=_logprob)}
            for token in tokens
        ],
        "text_offset": _offsets(text, tokens),
    }


def _offsets(text: str, tokens: list[dict[str, Any]]) -> list[int]:
    """Where in the text each token begins, in characters.

    A token that goes on with a character begins where that character does; one without bytes
    where the next one begins. None begins behind a text that was cut at a stop string.
    """
    pieces = [bytes(token["bytes"]) for token in tokens]
    owners = _owners(b"".join(pieces))
    starts = accumulate(map(len, pieces[:-1]), initial=0)
    return [min(owners[start], len(text)) for start, _ in zip(starts, pieces, strict=False)]


def _owners(data: bytes) -> list[int]:
    """Of each byte the number of its character, where torn ones are one; last, how many there are.

    Python's incremental decoder could not tell: it waits for bytes behind some that begin none.
    """
    owners: list[int] = []
    left = memoryview(data)
    while left:
        try:
            whole, torn = str(left, "utf-8"), 0
            left = left[len(left) :]
        except UnicodeDecodeError as error:
            whole, torn = str(left[: error.start], "utf-8"), error.end - error.start
            left = left[error.end :]
        first = owners[-1] + 1 if owners else 0
        for number, character in enumerate(whole, first):
            owners += [number] * len(character.encode())
        owners += [first + len(whole)] * torn
    owners.append(owners[-1] + 1 if owners else 0)
    return owners


def _logprob(token: dict[str, Any]) -> float:
    value: float = token["logprob"]
    return max(value, LEAST_LOGPROB)


def _bytes(top: dict[str, Any], chosen: dict[str, Any]) -> list[int] | None:
    """Null where the token is no text by itself, as OpenAI has it."""
    if top["token_id"] == chosen["token_id"]:
        own: list[int] = chosen["bytes"]
        return own
    return None if "\ufffd" in top["token"] else list(top["token"].encode())
