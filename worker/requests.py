"""From rows of the normalized copy to requests of the engine."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.errors import RequestError
from engine.request import Request
from engine.sampling_params import SamplingParams
from jobs.beam_rules import search_width
from jobs.errors import RowError
from jobs.records import ChunkLease, RowErrorInfo, RowResult
from worker.prompts import PromptEncoder

log = logging.getLogger("pagemill.worker")

COLUMNS = ("row_index", "line", "prompt", "messages", "chat", "params", "continuations")
ENCODE_ROWS = 64  # rows tokenized at a time: the first requests leave before the last is read


@dataclass(frozen=True, slots=True)
class PreparedRow:
    """A row that can be computed.

    Attributes:
        seed: what all its samples are drawn with; None where nothing is sampled.
        requests: one for each sample, in their order; they share the prompt's tokens. One for
            each continuation of a row that is scored.
        continuations: of a row that is scored.
    """

    row_index: int
    seed: int | None
    requests: tuple[Request, ...]
    continuations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """Some rows of a chunk: those that can be computed, and errors for the others."""

    rows: tuple[PreparedRow, ...]
    refused: tuple[RowResult, ...]

    @property
    def requests(self) -> tuple[Request, ...]:
        return tuple(request for row in self.rows for request in row.requests)


def prepare(
    lease: ChunkLease,
    rows: Sequence[Mapping[str, Any]],
    encoder: PromptEncoder,
    max_model_len: int,
) -> Iterator[Prepared]:
    """Render and tokenize rows (with the keys `COLUMNS`), a batch at a time, in order."""
    for at in range(0, len(rows), ENCODE_ROWS):
        yield _prepare_batch(lease, rows[at : at + ENCODE_ROWS], encoder, max_model_len)


def derived_seed(job_seed: int, row_index: int) -> int:
    """The seed of a row that names none: the same however the job is cut and resumed."""
    digest = hashlib.sha256(f"{job_seed}:{row_index}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def request_id(lease: ChunkLease, row_index: int, sample: int = 0) -> str:
    """Unique for each attempt: a late answer of an earlier lease can't be taken for a new one."""
    return f"{lease.chunk_id}:{lease.epoch}:{row_index}:{sample}"


def lease_of(request_id: str) -> tuple[str, int] | None:
    """Chunk and epoch of the lease under which a request was made; None if under none."""
    chunk_id, *numbers = request_id.rsplit(":", 3)
    return (chunk_id, int(numbers[0])) if len(numbers) == 3 else None


def row_of(request: Request) -> str:
    """Names the row in whose samples the request is one; the others' is the same."""
    return request.request_id.removesuffix(f":{request.sample_index}")


def _prepare_batch(
    lease: ChunkLease,
    rows: Sequence[Mapping[str, Any]],
    encoder: PromptEncoder,
    max_model_len: int,
) -> Prepared:
    chats: list[tuple[int, str]] = []
    prompts: list[tuple[int, str]] = []
    sampling: dict[int, tuple[SamplingParams, int]] = {}
    refused: list[RowResult] = []
    for row in rows:
        index = row["row_index"]
        try:
            wanted = row_sampling(lease, row)
            text, is_chat = row_text(lease, row, encoder)
            check_length(text, encoder, max_model_len)
            (chats if is_chat else prompts).append((index, text))
            sampling[index] = wanted
        except Exception as error:
            refused.append(refusal_of(lease, row, error))
    by_index = {row["row_index"]: row for row in rows}
    token_ids: dict[int, list[int]] = {}
    for texts, encode in ((chats, encoder.encode_chats), (prompts, encoder.encode_prompts)):
        for index, found in encoded(texts, encode):
            if isinstance(found, RequestError):
                refused.append(refusal_of(lease, by_index[index], found))
                del sampling[index]
            else:
                token_ids[index] = found
    prepared = tuple(
        PreparedRow(index, params.seed, _requests(lease, index, token_ids[index], params, n))
        for index, (params, n) in sampling.items()
    )
    return Prepared(prepared, tuple(refused))


def encoded(
    texts: Sequence[tuple[int, str]], encode: Callable[[Sequence[str]], list[list[int]]]
) -> Iterator[tuple[int, list[int] | RequestError]]:
    """The token ids of each text; an error for one that the tokenizer does not take.

    Args:
        texts: with the row_index of each.
    """
    try:
        yield from zip((i for i, _ in texts), encode([t for _, t in texts]), strict=True)
    except RequestError as error:
        if len(texts) == 1:
            yield texts[0][0], error
            return
        for text in texts:
            yield from encoded([text], encode)


def row_sampling(lease: ChunkLease, row: Mapping[str, Any]) -> tuple[SamplingParams, int]:
    """The row's own parameters over the job's, with a seed in any case; and how many samples.

    Raises:
        RequestError, RowError: a value is out of range, or parameters contradict each other.
    """
    values: dict[str, Any] = dict(lease.options.get("sampling") or {})
    values.update(json.loads(row["params"]) if row["params"] else {})
    values.setdefault("seed", derived_seed(lease.seed, row["row_index"]))
    width = search_width(values)
    samples = values.pop("n", 1)  # the engine knows single samples, and all beams of a search
    values.pop("use_beam_search", None)  # it is in the width
    if width > 1:
        values["num_beams"], values["num_return_sequences"], samples = width, samples, 1
    return SamplingParams.from_json(values), samples


def row_text(lease: ChunkLease, row: Mapping[str, Any], encoder: PromptEncoder) -> tuple[str, bool]:
    """The text that the model reads, and whether a chat template wrote it.

    Raises:
        RequestError: the chat template refuses the row.
    """
    if row["messages"] is None:
        return row["prompt"], False
    chat = json.loads(row["chat"]) if row["chat"] else {}
    variables = {
        **(lease.options.get("chat_template_kwargs") or {}),
        **(chat.get("template_kwargs") or {}),
    }
    return encoder.render(json.loads(row["messages"]), chat.get("tools"), variables), True


def _requests(
    lease: ChunkLease, row_index: int, token_ids: Sequence[int], params: SamplingParams, n: int
) -> tuple[Request, ...]:
    prompt, timeout = tuple(token_ids), lease.options.get("row_timeout")
    others = replace(params, prompt_logprobs=None)  # they would be told the same again
    first = request_id(lease, row_index)
    return tuple(
        Request(
            request_id(lease, row_index, i),
            prompt,
            others if i else params,
            lease.priority,
            i,
            timeout,
            sample_of=first if n > 1 else None,
        )
        for i in range(n)
    )


def check_length(text: str, encoder: PromptEncoder, max_model_len: int) -> None:
    """Refuse a text that cannot fit however it is tokenized: to find out would take gigabytes.

    Raises:
        RequestError: `prompt_too_long`.
    """
    if len(text) > max_model_len * encoder.longest_token:
        raise RequestError(
            "prompt_too_long",
            f"the prompt has {len(text)} characters; however they are cut into tokens, they are "
            f"more than the {max_model_len} tokens that this model and worker take",
            "prompt",
        )


def refusal_of(lease: ChunkLease, row: Mapping[str, Any], error: Exception) -> RowResult:
    """The end of a row that cannot be used, or it would end every attempt at its chunk."""
    if not isinstance(error, RequestError | RowError):
        log.error("row %d of %s cannot be used", row["row_index"], lease.chunk_id, exc_info=error)
        error = RequestError(
            "unusable_row",
            f"the worker cannot make a request of the row ({type(error).__name__}: {error}); its "
            "log has more. Is it of another version than the pagemill that submitted the row?",
        )
    return RowResult(
        row["row_index"],
        finish_reason="error",
        error=RowErrorInfo(error.code, str(error), row["line"], error.field),
    )
