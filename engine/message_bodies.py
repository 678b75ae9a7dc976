"""Requests and answers as JSON, for the messages of the engine's pipe."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from engine.errors import RequestError
from engine.request import FinishReason, Request, RequestOutput, TokenLogprob, TopLogprob
from engine.sampling_params import SamplingParams

_REQUEST_FIELDS = tuple(f.name for f in dataclasses.fields(Request))
_OUTPUT_FIELDS = tuple(f.name for f in dataclasses.fields(RequestOutput))


def requests_body(requests: Sequence[Request]) -> dict[str, Any]:
    """Several samples of a prompt share it: it is sent once, and kept once at the other end."""
    prompts: dict[tuple[int, ...], int] = {}
    bodies = [
        {
            **{name: getattr(request, name) for name in _REQUEST_FIELDS},
            "token_ids": prompts.setdefault(request.token_ids, len(prompts)),
            "params": asdict(request.params),
        }
        for request in requests
    ]
    return {"prompts": list(prompts), "requests": bodies}


def requests_of(
    body: dict[str, Any],
) -> tuple[tuple[Request, ...], tuple[RequestOutput, ...]]:
    """The requests, and the ends of those that cannot be read: each is its own error only."""
    prompts = [tuple(p) for p in body["prompts"]]
    found = [_request_or_end(r, prompts) for r in body["requests"]]
    return (
        tuple(r for r in found if isinstance(r, Request)),
        tuple(r for r in found if isinstance(r, RequestOutput)),
    )


def output_body(output: RequestOutput) -> dict[str, Any]:
    """As `asdict`, which would take long over the thousands of objects of log probabilities."""
    body = {name: getattr(output, name) for name in _OUTPUT_FIELDS}
    if output.logprobs is not None:
        # JSON has no bytes; in Latin-1 each byte is the character of the same number.
        body["logprobs"] = [
            (t.token_id, t.token, t.bytes.decode("latin-1"), t.logprob,
             [(top.token_id, top.token, top.logprob) for top in t.top])
            for t in output.logprobs
        ]  # fmt: skip
    return body


def output_of(body: dict[str, Any]) -> RequestOutput:
    body["token_ids"] = tuple(body["token_ids"])
    body["finish_reason"] = FinishReason(body["finish_reason"])
    if body["logprobs"] is not None:
        body["logprobs"] = tuple(
            TokenLogprob(
                token_id, token, data.encode("latin-1"), logprob, tuple(TopLogprob(*t) for t in top)
            )
            for token_id, token, data, logprob, top in body["logprobs"]
        )
    return RequestOutput(**body)


def _request_or_end(
    body: dict[str, Any], prompts: Sequence[tuple[int, ...]]
) -> Request | RequestOutput:
    request_id = body["request_id"]
    try:
        return _request(body, prompts)
    except RequestError as error:
        return RequestOutput.without_answer(request_id, error.code, str(error), error.field)
    except Exception as error:
        said = f"the engine cannot read the request ({type(error).__name__}: {error})"
        return RequestOutput.without_answer(request_id, "engine_error", said)


def _request(body: dict[str, Any], prompts: Sequence[tuple[int, ...]]) -> Request:
    params = body["params"]
    for name in ("stop", "stop_token_ids"):
        params[name] = tuple(params[name])
    body["params"] = SamplingParams(**params)
    body["token_ids"] = prompts[body["token_ids"]]
    return Request(**body)
