"""What the worker process and the engine process say to each other.

JSON over a pipe, never pickle: nothing that comes through can be executed. Messages carry
many requests or answers each, so that a step costs one system call, not one a row.

    worker -> engine   Start, AddRequests, AbortRequests      (closing the pipe ends the engine)
    engine -> worker   Ready or Refused, then Report … ; Crashed before an unexpected end
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.request import FinishReason, Request, RequestOutput
from engine.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Start:
    """First message: the settings, as `EngineConfig.from_mapping` takes them."""

    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AddRequests:
    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class AbortRequests:
    request_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded and the KV pool is there.

    Attributes:
        model_path: local folder with the tokenizer's files.
        revision: identity of the weights and tokenizer.
    """

    model_path: str
    revision: str
    dtype: str
    device: str
    max_model_len: int
    block_size: int
    num_blocks: int
    load_seconds: float


@dataclass(frozen=True, slots=True)
class Refused:
    """The model or the settings cannot work; starting again would not help."""

    message: str


@dataclass(frozen=True, slots=True)
class Crashed:
    """The engine ends because of an unexpected error."""

    message: str


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens of one request so far."""

    prompt: int
    cached: int
    completion: int


@dataclass(frozen=True, slots=True)
class EngineStats:
    """How the engine stands, and what it has done since it started.

    Attributes:
        running, waiting: requests that hold a place in the batch, and that have none yet.
        blocks_used: KV blocks that sequences hold.
        blocks_cached: blocks kept for the prefix cache alone, taken back when needed.
        blocks_total: size of the KV pool.
        steps, prompt_tokens, cached_tokens, generated_tokens, preemptions: counts since the
            start; see `engine.scheduler_stats.SchedulerStats`.
        step_seconds: time spent in steps since the start.
        step_buckets: how many steps took at most each of `STEP_BUCKETS` seconds; not cumulative,
            and one more for the longer ones.
    """

    running: int = 0
    waiting: int = 0
    blocks_used: int = 0
    blocks_cached: int = 0
    blocks_total: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    step_seconds: float = 0.0
    step_buckets: tuple[int, ...] = ()


STEP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


@dataclass(frozen=True, slots=True)
class Report:
    """Answers, and now and then how the running requests and the engine stand.

    Attributes:
        running: by request id; sent about twice a second, otherwise None.
        stats: sent together with `running`, and once more when the engine falls idle.
    """

    outputs: tuple[RequestOutput, ...] = ()
    running: Mapping[str, TokenCounts] | None = field(default=None)
    stats: EngineStats | None = None


Message = Start | AddRequests | AbortRequests | Ready | Refused | Crashed | Report
_TYPES: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (Start, AddRequests, AbortRequests, Ready, Refused, Crashed, Report)
}


def encode(message: Message) -> bytes:
    """One message as UTF-8 JSON."""
    body = dataclasses.asdict(message)
    body["type"] = type(message).__name__
    return json.dumps(body, separators=(",", ":")).encode()


def decode(data: bytes) -> Message:
    """The message that `encode` wrote.

    Raises:
        ValueError: the bytes are not such a message.
    """
    body = json.loads(data)
    cls = _TYPES.get(body.pop("type", None)) if isinstance(body, dict) else None
    if cls is AddRequests:
        return AddRequests(tuple(_request(r) for r in body["requests"]))
    if cls is AbortRequests:
        return AbortRequests(tuple(body["request_ids"]))
    if cls is Report:
        running = body["running"]
        return Report(
            tuple(_output(o) for o in body["outputs"]),
            None if running is None else {i: TokenCounts(**c) for i, c in running.items()},
        )
    if cls is None:
        raise ValueError("not a message of the engine's pipe")
    message: Message = cls(**body)
    return message


def _request(body: dict[str, Any]) -> Request:
    params = body["params"]
    for name in ("stop", "stop_token_ids"):
        params[name] = tuple(params[name])
    return Request(
        body["request_id"], tuple(body["token_ids"]), SamplingParams(**params), body["priority"]
    )


def _output(body: dict[str, Any]) -> RequestOutput:
    body["token_ids"] = tuple(body["token_ids"])
    body["finish_reason"] = FinishReason(body["finish_reason"])
    return RequestOutput(**body)
