"""What decides the answers of a job, in one hash."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import jobs
from engine.messages import Ready
from jobs.records import ChunkLease

# They turn rows into tokens, tokens into logits, and logits into answers of a given form.
LIBRARIES = ("jinja2", "llguidance", "tokenizers", "torch", "transformers", "triton")


def fingerprint(lease: ChunkLease, ready: Ready, tokenizer_digest: str) -> str:
    """Rows that another worker spooled are adopted only where this is the same.

    In it are the model's revision, the tokenizer and its template, the number formats, whether
    the engine is deterministic, its version and those of the libraries that it computes with, and
    the job's frozen options.
    """
    facts = {
        "pagemill": jobs.__version__,
        "libraries": library_versions(),
        "model": lease.model,
        "revision": ready.revision,
        "dtype": ready.dtype,
        "kv_dtype": ready.kv_dtype,
        "deterministic": ready.deterministic,
        "tokenizer": tokenizer_digest,
        "max_model_len": ready.max_model_len,
        "options": lease.options,
        "seed": lease.seed,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@cache
def library_versions() -> dict[str, str | None]:
    """Of `LIBRARIES`, as the engine has them, which runs in the same environment.

    A library that is not installed has None; none is loaded to find out.
    """
    found: dict[str, str | None] = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found
