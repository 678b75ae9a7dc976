"""What the worker process and the engine process say to each other.

JSON over a pipe, never pickle: nothing that comes through can be executed. Messages carry
many requests or answers each, so that a step costs one system call, not one a row.

    worker -> engine   Start, AddRequests, AbortRequests      (closing the pipe ends the engine)
    engine -> worker   Located, then Ready, then Report and BatchChanged … ; Refused instead of
                       one of the first two; Loading before them; Crashed before an unexpected end
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, get_args

from engine.message_bodies import output_body, output_of, requests_body, requests_of
from engine.request import Request, RequestOutput


@dataclass(frozen=True, slots=True)
class Start:
    """First message: the settings, as `EngineConfig.from_mapping` takes them."""

    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AddRequests:
    """Requests to be queued.

    Attributes:
        unreadable: the ends of those that came but could not be read; they are never sent.
    """

    requests: tuple[Request, ...]
    unreadable: tuple[RequestOutput, ...] = ()


@dataclass(frozen=True, slots=True)
class AbortRequests:
    request_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Loading:
    """What the start is at; there is more to come.

    Attributes:
        step: in words, such as `loading weights 60%, about 12 s left`.
    """

    step: str


@dataclass(frozen=True, slots=True)
class Located:
    """The model's files are there; its weights are loaded next.

    Attributes:
        model_path: local folder with the tokenizer's files.
    """

    model_path: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded and the KV pool is there.

    Attributes:
        model_path: local folder with the tokenizer's files.
        revision: identity of the weights and tokenizer.
        kv_dtype: number format of the KV cache.
        deterministic: see `engine.config.EngineConfig`.
    """

    model_path: str
    revision: str
    dtype: str
    kv_dtype: str
    device: str
    max_model_len: int
    block_size: int
    num_blocks: int
    load_seconds: float
    deterministic: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The model or the settings cannot work; starting again would not help."""

    message: str


@dataclass(frozen=True, slots=True)
class Crashed:
    """The engine ends because of an unexpected error."""

    message: str


@dataclass(frozen=True, slots=True)
class BatchChanged:
    """Other requests than before hold a place in the batch of the step that is computed next.

    It is in the pipe before the step begins, and stays there if the engine dies in that step: so
    the worker knows who was inside.

    Attributes:
        entered: request ids that were admitted, the first to be served first.
        left: those that have ended, were aborted or preempted.
    """

    entered: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


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
        swap_blocks_used: host blocks that preempted requests hold.
        swap_blocks_total: size of the swap space.
        steps, prompt_tokens, cached_tokens, generated_tokens, late_tokens, preemptions, swap_outs,
            swap_ins: counts since the start; see `engine.scheduler_stats.SchedulerStats`.
        step_seconds: time spent in steps since the start.
        step_buckets: how many steps took at most each of `STEP_BUCKETS` seconds; not cumulative,
            and one more for the longer ones.
        out_of_memory: times that a step, or a part of it, found no memory.
    """

    running: int = 0
    waiting: int = 0
    blocks_used: int = 0
    blocks_cached: int = 0
    blocks_total: int = 0
    swap_blocks_used: int = 0
    swap_blocks_total: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    late_tokens: int = 0
    preemptions: int = 0
    swap_outs: int = 0
    swap_ins: int = 0
    step_seconds: float = 0.0
    step_buckets: tuple[int, ...] = ()
    out_of_memory: int = 0


STEP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


@dataclass(frozen=True, slots=True)
class Report:
    """Answers, and now and then how the running requests and the engine stand.

    Attributes:
        running: by request id; sent about twice a second, otherwise None.
        stats: sent together with `running`, and once before there is any work.
        device_seconds: by request id, what the steps took of the device's time for it since it was
            told last. Those of the answers come with them, the others with `stats`.

    The last report before the engine waits for work has both, so that nothing seems to run on.
    """

    outputs: tuple[RequestOutput, ...] = ()
    running: Mapping[str, TokenCounts] | None = None
    stats: EngineStats | None = None
    device_seconds: Mapping[str, float] = field(default_factory=dict)


Message = (
    Start
    | AddRequests
    | AbortRequests
    | Loading
    | Located
    | Ready
    | Refused
    | Crashed
    | BatchChanged
    | Report
)
_TYPES: dict[str, type[Any]] = {cls.__name__: cls for cls in get_args(Message)}


def encode(message: Message) -> bytes:
    """One message as UTF-8 JSON."""
    if isinstance(message, Report):
        body = _report_body(message)
    elif isinstance(message, AddRequests):
        body = requests_body(message.requests)
    else:
        body = asdict(message)
    body["type"] = type(message).__name__
    return json.dumps(body, separators=(",", ":")).encode()


def decode(data: bytes) -> Message:
    """The message that `encode` wrote.

    Raises:
        ValueError: the bytes are not such a message.
    """
    try:
        return _decoded(json.loads(data))
    except ValueError:  # of ours, or of a text that is no JSON
        raise
    except Exception as error:
        raise ValueError(
            f"not a message of the engine's pipe ({type(error).__name__}: {error})"
        ) from error


def _decoded(body: Any) -> Message:
    cls = _TYPES.get(body.pop("type", None)) if isinstance(body, dict) else None
    if cls is AddRequests:
        return AddRequests(*requests_of(body))
    if cls is AbortRequests:
        return AbortRequests(tuple(body["request_ids"]))
    if cls is BatchChanged:
        return BatchChanged(tuple(body["entered"]), tuple(body["left"]))
    if cls is Report:
        running, stats = body["running"], body["stats"]
        return Report(
            tuple(output_of(o) for o in body["outputs"]),
            None if running is None else {i: TokenCounts(**c) for i, c in running.items()},
            None if stats is None else _stats(stats),
            body["device_seconds"],
        )
    if cls is None:
        raise ValueError("not a message of the engine's pipe")
    message: Message = cls(**body)
    return message


def _stats(body: dict[str, Any]) -> EngineStats:
    body["step_buckets"] = tuple(body["step_buckets"])
    return EngineStats(**body)


def _report_body(report: Report) -> dict[str, Any]:
    """As `asdict`, which would take long over the thousands of objects of log probabilities."""
    running, stats = report.running, report.stats
    return {
        "outputs": [output_body(output) for output in report.outputs],
        "running": None if running is None else {i: asdict(c) for i, c in running.items()},
        "stats": None if stats is None else asdict(stats),
        "device_seconds": report.device_seconds,
    }
