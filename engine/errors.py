"""Every error of the engine.

    EngineError
    ├── ConfigError            an engine setting that cannot work
    ├── ModelError             the model cannot be served
    │   ├── ModelNotFound          no such folder, file, alias or hub id
    │   ├── UnsupportedModel       architecture, activation, rope type … that we do not have
    │   └── BrokenModel            files are there but do not fit together
    ├── OutOfBlocks            the KV pool has no free block (never leaves the scheduler)
    ├── InvariantError         the scheduler's own books contradict each other: a bug
    └── RequestError           one request is refused; it has a `code` and a `field`

A message says what was wrong, where, and what to do.
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of all errors that the engine raises on purpose."""


class ConfigError(EngineError):
    """A setting of the engine cannot work."""


class ModelError(EngineError):
    """The model cannot be served."""


class ModelNotFound(ModelError):
    """There is no such folder, file, alias or hub id."""


class UnsupportedModel(ModelError):
    """The model needs something that pagemill does not have."""


class BrokenModel(ModelError):
    """Model files are missing or contradict each other."""


class OutOfBlocks(EngineError):
    """The KV pool has no free block left."""


class InvariantError(EngineError, AssertionError):
    """Something that must always hold in the scheduler does not: a bug of ours."""


class RequestError(EngineError):
    """One request cannot be served; all others are untouched.

    Attributes:
        code: stable machine-readable name, such as ``prompt_too_long``.
        field: the request's field that is at fault, where there is one.
    """

    def __init__(self, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.field = field


def duplicate_request(request_id: str) -> RequestError:
    """Of a request whose id another one has that was not answered yet."""
    return RequestError(
        "duplicate_request",
        f"a request {request_id!r} is still in the engine; wait for its answer, abort it, or use "
        "another id",
        "request_id",
    )


# What a sequence that was begun may end with, by its code.
ROW_ERRORS = {
    "nan_logits": "the model's logits were not finite, so no token can be trusted",
    "no_token_left": "what the row asks for (allowed_token_ids, bad_words, logit_bias, min_tokens) "
    "left it no token to take; allow more of them",
    "invalid_grammar": "its grammar allows no token here, so the answer cannot go on",
    "grammar_too_large": "its grammar takes more work or memory for a token than is allowed; make "
    "it simpler",
    "row_timeout": "the row was not answered within {timeout:g} s (--row-timeout) of its beginning",
    "out_of_memory": "there was no memory to compute even one of its tokens; leave more of it "
    "free beside the KV cache (--gpu-memory-utilization, --num-blocks)",
}
