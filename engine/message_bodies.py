"""Requests and answers as JSON, for the messages of the engine's pipe."""

from __future__ import annotations

import base64
import dataclasses
from array import array
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from engine.errors import RequestError
from engine.grammar.spec import GrammarSpec
from engine.request import (
    BeamOutput,
    FinishReason,
    Request,
    RequestOutput,
    ScoreOutput,
    TokenLogprob,
    TopLogprob,
)
from engine.sampling_params import SamplingParams
from engine.task import Embed, Pooling, Score, Task

_AT_REST = SamplingParams()
_PARAM_FIELDS = tuple(f.name for f in dataclasses.fields(SamplingParams))
_REQUEST_FIELDS = tuple(f.name for f in dataclasses.fields(Request))
_OUTPUT_FIELDS = tuple(f.name for f in dataclasses.fields(RequestOutput))


def requests_body(requests: Sequence[Request]) -> dict[str, Any]:
    """Requests share prompts and grammars: each is sent once, and kept once at the other end."""
    prompts: dict[tuple[int, ...], int] = {}
    grammars: dict[tuple[GrammarSpec, str], int] = {}
    bodies = [
        {
            **{name: getattr(request, name) for name in _REQUEST_FIELDS},
            "token_ids": prompts.setdefault(request.token_ids, len(prompts)),
            "params": _params_body(request.params, grammars),
            "task": _task_body(request.task),
        }
        for request in requests
    ]
    shared = {"prompts": list(prompts), "grammars": [asdict(spec) for spec, _ in grammars]}
    return {**shared, "requests": bodies}


def _params_body(
    params: SamplingParams, grammars: dict[tuple[GrammarSpec, str], int]
) -> dict[str, Any]:
    """What is not at rest; `asdict` would copy lists of thousands of tokens one by one."""
    values = ((name, getattr(params, name)) for name in _PARAM_FIELDS)
    body = {name: value for name, value in values if value != getattr(_AT_REST, name)}
    if (spec := params.grammar) is not None:
        # Equal grammars may be called by different names.
        body["grammar"] = grammars.setdefault((spec, spec.field), len(grammars))
    return body


def requests_of(
    body: dict[str, Any],
) -> tuple[tuple[Request, ...], tuple[RequestOutput, ...]]:
    """The requests, and the ends of those that cannot be read: each is its own error only."""
    prompts = [tuple(p) for p in body["prompts"]]
    found = [_request_or_end(r, prompts, body["grammars"]) for r in body["requests"]]
    return (
        tuple(r for r in found if isinstance(r, Request)),
        tuple(r for r in found if isinstance(r, RequestOutput)),
    )


def output_body(output: RequestOutput) -> dict[str, Any]:
    """As `asdict`, which would take long over the thousands of objects of log probabilities."""
    body = {name: getattr(output, name) for name in _OUTPUT_FIELDS}
    body["beams"] = [dataclasses.asdict(beam) for beam in output.beams]
    for name in ("logprobs", "prompt_logprobs"):
        if body[name] is not None:
            body[name] = [_logprob_body(t) for t in body[name]]
    if output.score is not None:
        score = output.score
        body["score"] = [score.logprob, _floats_body(score.token_logprobs), score.is_greedy]
    if output.embedding is not None:
        body["embedding"] = _floats_body(output.embedding)
    return body


def output_of(body: dict[str, Any]) -> RequestOutput:
    """The answer that `output_body` took apart."""
    _restore(body)
    body["beams"] = tuple(BeamOutput(**_restore(beam)) for beam in body["beams"])
    for name in ("logprobs", "prompt_logprobs"):
        if body[name] is not None:
            body[name] = tuple(_logprob(*t) for t in body[name])
    if body["score"] is not None:
        logprob, values, is_greedy = body["score"]
        body["score"] = ScoreOutput(logprob, _floats(values), is_greedy)
    if body["embedding"] is not None:
        body["embedding"] = _floats(body["embedding"])
    return RequestOutput(**body)


def _restore(answer: dict[str, Any]) -> dict[str, Any]:
    """Bring an answer's tokens and its end back into their own types."""
    answer["token_ids"] = tuple(answer["token_ids"])
    answer["finish_reason"] = FinishReason(answer["finish_reason"])
    return answer


def _request_or_end(
    body: dict[str, Any],
    prompts: Sequence[tuple[int, ...]],
    grammars: Sequence[dict[str, Any]],
) -> Request | RequestOutput:
    request_id = body["request_id"]
    try:
        return _request(body, prompts, grammars)
    except RequestError as error:
        return RequestOutput.refused(request_id, error)
    except Exception as error:
        said = f"the engine cannot read the request ({type(error).__name__}: {error})"
        return RequestOutput.without_answer(request_id, "engine_error", said)


def _request(
    body: dict[str, Any],
    prompts: Sequence[tuple[int, ...]],
    grammars: Sequence[dict[str, Any]],
) -> Request:
    params = body["params"]
    if "grammar" in params:
        params["grammar"] = grammars[params["grammar"]]
    body["params"] = SamplingParams.from_json(params)
    body["token_ids"] = prompts[body["token_ids"]]
    body["task"] = _task_of(body["task"])
    return Request(**body)


def _task_body(task: Task | None) -> dict[str, Any] | None:
    return None if task is None else {"name": type(task).__name__, **dataclasses.asdict(task)}


def _task_of(body: dict[str, Any] | None) -> Task | None:
    """The task that `_task_body` took apart."""
    if body is None:
        return None
    if body["name"] == Score.__name__:
        return Score(body["context"])
    return Embed(Pooling(body["pooling"]), body["normalize"])


def _logprob_body(t: TokenLogprob) -> tuple[Any, ...]:
    # JSON has no bytes; in Latin-1 each byte is the character of the same number.
    top = [(top.token_id, top.token, top.logprob) for top in t.top]
    return t.token_id, t.token, t.bytes.decode("latin-1"), t.logprob, top


def _logprob(
    token_id: int, token: str, data: str, logprob: float, top: list[list[Any]]
) -> TokenLogprob:
    tops = tuple(TopLogprob(*t) for t in top)
    return TokenLogprob(token_id, token, data.encode("latin-1"), logprob, tops)


def _floats_body(values: array[float]) -> str:
    """float32 by their bytes: exact, and a third of what decimal digits take."""
    return base64.b64encode(values.tobytes()).decode()


def _floats(text: str) -> array[float]:
    return array("f", base64.b64decode(text))
