"""Rows of jobs that score or embed, as requests of the engine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import RequestError
from engine.request import Request
from engine.task import Embed, Pooling, Score, Task
from jobs.kinds import JobKind, kind_of_job
from jobs.records import ChunkLease, RowResult
from worker import requests
from worker.prompts import PromptEncoder
from worker.requests import (
    ENCODE_ROWS,
    Prepared,
    PreparedRow,
    check_length,
    encoded,
    refusal_of,
    request_id,
)


def prepare(
    lease: ChunkLease,
    rows: Sequence[Mapping[str, Any]],
    encoder: PromptEncoder,
    max_model_len: int,
) -> Iterator[Prepared]:
    """Render and tokenize rows of a job of any kind, a batch at a time, in order.

    Args:
        rows: with the keys `worker.requests.COLUMNS`.
    """
    kind = kind_of_job(lease.options)
    if kind is JobKind.GENERATE:
        yield from requests.prepare(lease, rows, encoder, max_model_len)
        return
    batch = _score_batch if kind is JobKind.SCORE else _embed_batch
    for at in range(0, len(rows), ENCODE_ROWS):
        yield batch(lease, rows[at : at + ENCODE_ROWS], encoder, max_model_len)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """A context and what may follow it, as texts.

    Attributes:
        context: without white space at its end, which belongs to the continuations: most
            tokenizers make one token of a space and the word after it.
        joint: context and continuation together, of each continuation.
    """

    row: Mapping[str, Any]
    is_chat: bool
    context: str
    joint: tuple[str, ...]
    continuations: tuple[str, ...]

    @classmethod
    def of(cls, row: Mapping[str, Any], text: str, is_chat: bool) -> _Pairs:
        continuations = tuple(json.loads(row["continuations"]))
        joint = tuple(text + continuation for continuation in continuations)
        return cls(row, is_chat, text.rstrip(), joint, continuations)


def _score_batch(
    lease: ChunkLease,
    rows: Sequence[Mapping[str, Any]],
    encoder: PromptEncoder,
    max_model_len: int,
) -> Prepared:
    refused: list[RowResult] = []
    found: list[_Pairs] = []
    for row in rows:
        try:
            pairs = _Pairs.of(row, *requests.row_text(lease, row, encoder))
            check_length(max(pairs.joint, key=len), encoder, max_model_len)
            found.append(pairs)
        except Exception as error:
            refused.append(refusal_of(lease, row, error))
    prepared: list[PreparedRow] = []
    for pairs, token_ids in zip(found, _encode_pairs(found, encoder), strict=True):
        try:
            scored = _scored(lease, pairs, token_ids, encoder)
            index = pairs.row["row_index"]
            prepared.append(PreparedRow(index, None, scored, pairs.continuations))
        except RequestError as error:
            refused.append(refusal_of(lease, pairs.row, error))
    return Prepared(tuple(prepared), tuple(refused))


def _encode_pairs(
    found: Sequence[_Pairs], encoder: PromptEncoder
) -> Iterator[list[list[int] | RequestError]]:
    """Of each row, the tokens of its context and then of each joint text."""
    texts = [(pairs.is_chat, text) for pairs in found for text in (pairs.context, *pairs.joint)]
    chats = [(i, text) for i, (is_chat, text) in enumerate(texts) if is_chat]
    prompts = [(i, text) for i, (is_chat, text) in enumerate(texts) if not is_chat]
    token_ids = dict(encoded(chats, encoder.encode_chats))
    token_ids.update(encoded(prompts, encoder.encode_openings))
    at = 0
    for pairs in found:
        size = 1 + len(pairs.joint)
        yield [token_ids[i] for i in range(at, at + size)]
        at += size


def _scored(
    lease: ChunkLease,
    pairs: _Pairs,
    token_ids: Sequence[Sequence[int] | RequestError],
    encoder: PromptEncoder,
) -> tuple[Request, ...]:
    """One request for each continuation; they share the context's tokens.

    Raises:
        RequestError: the tokenizer does not take a text, there is nothing before a continuation,
            or nothing left of one.
    """
    context, *joint = (_tuple_of(ids) for ids in token_ids)
    start: tuple[int, ...] = ()
    if not context:  # as in EleutherAI's harness, an empty context is the model's own beginning
        if encoder.opening_token is None:
            raise RequestError(
                "empty_prompt",
                "the prompt is empty, and the model's tokenizer has no token that begins a text; "
                "give the row a prompt",
                "prompt",
            )
        context = start = (encoder.opening_token,)
    scored = []
    for i, ids in enumerate(joint):
        continuation = (*start, *ids)[len(context) :]
        if not continuation:
            raise RequestError(
                "empty_continuation",
                f"choices[{i}] adds no token to the prompt: the tokenizer makes the same tokens of "
                "both together as of the prompt alone",
                f"choices[{i}]",
            )
        scored.append(_request(lease, pairs.row, context + continuation, Score(len(context)), i))
    return tuple(scored)


def _embed_batch(
    lease: ChunkLease,
    rows: Sequence[Mapping[str, Any]],
    encoder: PromptEncoder,
    max_model_len: int,
) -> Prepared:
    task = Embed(Pooling(lease.options["pooling"]), lease.options["normalize"])
    prepared: list[PreparedRow] = []
    refused: list[RowResult] = []
    by_index = {row["row_index"]: row for row in rows}
    texts: list[tuple[int, str]] = []
    for index, row in by_index.items():
        try:
            check_length(row["prompt"], encoder, max_model_len)
            texts.append((index, row["prompt"]))
        except Exception as error:
            refused.append(refusal_of(lease, row, error))
    for index, token_ids in encoded(texts, encoder.encode_prompts):
        row = by_index[index]
        try:
            request = _request(lease, row, _tuple_of(token_ids), task)
            prepared.append(PreparedRow(index, None, (request,)))
        except RequestError as error:
            refused.append(refusal_of(lease, row, error))
    return Prepared(tuple(prepared), tuple(refused))


def _tuple_of(token_ids: Sequence[int] | RequestError) -> tuple[int, ...]:
    """The tokens of a text.

    Raises:
        RequestError: the tokenizer does not take it.
    """
    if isinstance(token_ids, RequestError):
        raise token_ids
    return tuple(token_ids)


def _request(
    lease: ChunkLease,
    row: Mapping[str, Any],
    token_ids: tuple[int, ...],
    task: Task,
    number: int = 0,
) -> Request:
    return Request(
        request_id(lease, row["row_index"], number),
        token_ids,
        priority=lease.priority,
        sample_index=number,
        timeout=lease.options.get("row_timeout"),
        task=task,
    )
