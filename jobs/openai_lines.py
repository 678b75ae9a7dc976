"""Lines of OpenAI batch files: `custom_id`, `method`, `url` and `body`.

A line is one of our rows, wrapped up. Unwrapped, its body has the keys and values that a row of
ours would have: `max_completion_tokens` becomes `max_tokens`, two keys about log probabilities
become one, and what concerns OpenAI's service alone is left out. Then it is validated as any row.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from jobs.errors import RowError
from jobs.keys import Kind, meaning
from jobs.kinds import JobKind
from jobs.parameters import check_parameter, read_json, shown, wrong_type
from jobs.schema import CHAT, COMPLETION, EMBEDDINGS
from jobs.unsupported import is_one_of, unsupported

_MAX_URL = 1000
_ENDPOINTS = (CHAT, COMPLETION, EMBEDDINGS)
_TEXTS = {COMPLETION: "prompt", EMBEDDINGS: "input"}  # what holds the text of a body
LINE_KEYS = frozenset({"method", "url", "body"})

# What OpenAI's service and vLLM's server do with a request, and not what the answer is.
_SERVICE = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "request_id",
        "safety_identifier",
        "service_tier",
        "session_id",
        "store",
        "user",
    }
)

# Parameters of bodies beside those that rows know, and their values that change nothing.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "cache_salt": (),
    "dimensions": (),
    "documents": ([],),
    "encoding_format": ("float",),
    "include_reasoning": (True,),
    "kv_transfer_params": (),
    "logprob_token_ids": (),
    "media_io_kwargs": ({},),
    "mm_processor_kwargs": ({},),
    "modalities": (["text"],),
    "moderation": (),
    "prediction": (),
    "priority": (0,),
    "prompt_embeds": (),
    "repetition_detection": (),
    "return_token_ids": (False,),
    "return_tokens_as_token_ids": (False,),
    "thinking_token_budget": (-1,),
    "truncation_side": (),
    "verbosity": (),
    "vllm_xargs": ({},),
    "watermarking": (False,),
    "web_search_options": (),
}

_TRANSLATED = frozenset(
    {
        *_SERVICE,
        *_UNSUPPORTED,
        "add_special_tokens",
        "custom_id",
        "logprobs",
        "max_completion_tokens",
        "top_k",
        "top_logprobs",
    }
)


def is_batch_line(row: Mapping[str, Any]) -> bool:
    """Whether a row is a line of a batch file, and not a row whose data have such names."""
    if "body" not in row or row.get("prompt") is not None or row.get("messages") is not None:
        return False
    if all(row.get(key) is None for key in LINE_KEYS):
        return False
    named = ("method" in row) + ("url" in row)
    return named == 2 or (named == 1 and isinstance(row["body"], dict))


def lacks_body(row: Mapping[str, Any]) -> bool:
    """Whether a row that has no prompt would be a line of a batch file if it had a body."""
    url = row.get("url")
    return "method" in row and isinstance(url, str) and _endpoint_of(url[:_MAX_URL]) is not None


def unwrap(
    line: Mapping[str, Any], models: Collection[str] | None, kind: JobKind = JobKind.GENERATE
) -> tuple[str, dict[str, Any]]:
    """The endpoint of a line, and the row in its body; null keys of the body are left out.

    Args:
        models: what `body.model` may be, the job's model first; None takes any.
        kind: of the job; one of another kind answers other endpoints.

    Raises:
        RowError: the line or its body cannot be read.
    """
    endpoint = _endpoint(line, kind)
    body = read_json(line.get("body"), "body", keys_once=True)
    if not isinstance(body, dict):
        raise missing("body") if body is None else wrong_type("body", body, "an object")
    row = {key: value for key, value in body.items() if value is not None}
    if "model" in row:
        _check_model(row.pop("model"), models)
    if not _TRANSLATED.isdisjoint(row):
        _translate(row, endpoint)
    text = _TEXTS.get(endpoint)
    if text is not None and not isinstance(row.get(text, ""), str):
        row[text] = _one_text(row[text], text)
    for other in ("prompt", "messages"):
        if other in row and other != (text or "messages"):
            raise RowError(
                "unknown_field",
                f"body.{other} is not read at {endpoint}; leave it out, or mend the url",
                f"body.{other}",
            )
    return endpoint, row


def unknown_key(key: str) -> RowError:
    """The error of a key in a body that means nothing to us. (Beside the body it would be data.)"""
    found = meaning(key)
    near = found.name if found.kind is Kind.MISSPELT else _nearest(key[:64])
    advice = f"did you mean {near}?" if near else "leave it out"
    return RowError(
        "unknown_field",
        f"body has a key {shown(key)} that pagemill does not know; {advice}",
        f"body.{key}",
    )


def misplaced(key: str) -> RowError:
    """The error of a parameter that stands beside the body."""
    return RowError("unknown_field", f"{shown(key)} stands beside the body; put it into it", key)


def _endpoint(line: Mapping[str, Any], kind: JobKind) -> str:
    method, url = line.get("method"), line.get("url")
    for name, value in (("method", method), ("url", url)):
        if value is None:
            raise missing(name)
        if not isinstance(value, str):
            raise wrong_type(name, value, "a string")
    if str(method).upper() != "POST":
        raise RowError(
            "unsupported_method",
            f"method is {shown(method)}; in an OpenAI batch file it must be POST",
            "method",
        )
    endpoint = _endpoint_of(str(url)[:_MAX_URL])
    if endpoint is None or (endpoint == EMBEDDINGS and kind is not JobKind.EMBED):
        raise RowError(
            "unsupported_url",
            f"url is {shown(url)}; of OpenAI batch files pagemill answers {CHAT} and {COMPLETION}, "
            f"and {EMBEDDINGS} with --kind embed",
            "url",
        )
    if kind is JobKind.EMBED and endpoint != EMBEDDINGS:
        raise RowError(
            "unsupported_url",
            f"url is {shown(url)}; a job of the kind embed answers {EMBEDDINGS} alone",
            "url",
        )
    return endpoint


@lru_cache(maxsize=256)  # a file repeats its url; the bound is for files that do not
def _endpoint_of(url: str) -> str | None:
    """Which endpoint a url names: a path with or without /v1 (as in Azure's files), or in full."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return None
    path = "/" + parts.path.strip("/")
    if parts.netloc:  # whatever stands before it belongs to that server
        path = next((p for p in _ENDPOINTS if path.endswith(p.removeprefix("/v1"))), path)
    return next((p for p in _ENDPOINTS if path in (p, p.removeprefix("/v1"))), None)


def _check_model(model: Any, models: Collection[str] | None) -> None:
    if not isinstance(model, str):
        raise wrong_type("body.model", model, "a string")
    if models is not None and model not in models:
        named = shlex.quote(model) if len(model) <= 200 else "NAME"
        raise RowError(
            "model_mismatch",
            f"the row asks for the model {shown(model)}, but the job's is "
            f"{shown(next(iter(models)))}; --served-model-name {named} answers it all the same",
            "body.model",
        )


def _translate(row: dict[str, Any], endpoint: str) -> None:
    """Change the keys of a body that rows do not have, or have with another meaning."""
    for name in [name for name in row if name in _SERVICE or name in _UNSUPPORTED]:
        value = row.pop(name)
        if name in _UNSUPPORTED and not is_one_of(value, _UNSUPPORTED[name]):
            raise unsupported(name, name, _UNSUPPORTED[name], "body.")
    if "custom_id" in row:
        raise RowError(
            "unknown_field", "custom_id stands in the body; put it beside it", "body.custom_id"
        )
    _add_special_tokens(row, endpoint)
    _max_completion_tokens(row)
    if row.get("top_k") == -1:  # as older versions of vLLM have it
        row["top_k"] = 0
    if endpoint == CHAT:
        _chat_logprobs(row)


def _add_special_tokens(row: dict[str, Any], endpoint: str) -> None:
    """Chat templates write the special tokens; raw prompts get them from the tokenizer."""
    done = endpoint != CHAT
    if row.pop("add_special_tokens", done) is not done:
        raise unsupported("add_special_tokens", "add_special_tokens", (done,), "body.")


def _max_completion_tokens(row: dict[str, Any]) -> None:
    name = "max_completion_tokens"
    if name not in row:
        return
    value = check_parameter("max_tokens", row.pop(name), f"body.{name}")
    if row.setdefault("max_tokens", value) != value:
        raise RowError(
            "invalid_parameter",
            f"body has both {name} ({value}) and max_tokens ({shown(row['max_tokens'])}); leave "
            "max_tokens out",
            f"body.{name}",
        )


def _chat_logprobs(row: dict[str, Any]) -> None:
    """`logprobs` is true or false at chats, and `top_logprobs` says how many."""
    wanted, top = row.pop("logprobs", False), row.pop("top_logprobs", 0)
    if not isinstance(wanted, bool):
        raise wrong_type("body.logprobs", wanted, f"true or false at {CHAT}")
    top = check_parameter("logprobs", top, "body.top_logprobs")
    if wanted:
        row["logprobs"] = top
    elif top:
        raise RowError(
            "invalid_parameter",
            f"body.top_logprobs is {top}, but body.logprobs is not true; set it, or leave "
            "top_logprobs out",
            "body.top_logprobs",
        )


def _one_text(prompt: Any, name: str) -> Any:
    """OpenAI takes several prompts in one request, as texts or as tokens."""
    if not isinstance(prompt, list):
        return prompt
    if len(prompt) == 1 and isinstance(prompt[0], str):
        return prompt[0]
    if all(isinstance(text, str) for text in prompt):
        what = f"body.{name} is a list of {len(prompt)} texts; write a line for each"
    else:
        what = (
            f"body.{name} is a list, but not of texts; pagemill reads no token ids, write the text"
        )
    raise RowError("unsupported_content", what, f"body.{name}")


def missing(name: str) -> RowError:
    """The error of a line that lacks one of its three keys."""
    return RowError(
        "missing_field",
        f"the row has no {name}; a line of an OpenAI batch file has method, url and body",
        name,
    )


@lru_cache(maxsize=1024)
def _nearest(key: str) -> str | None:
    known = ("model", "max_completion_tokens", "top_logprobs", "tools", *_SERVICE, *_UNSUPPORTED)
    return next(iter(difflib.get_close_matches(key, known, 1, 0.8)), None)
