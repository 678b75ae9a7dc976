"""What decides the answers of a job, in one hash."""

from __future__ import annotations

import hashlib
import json

import jobs
from engine.messages import Ready
from jobs.records import ChunkLease


def fingerprint(lease: ChunkLease, ready: Ready, tokenizer_digest: str) -> str:
    """Rows that another worker spooled are adopted only where this is the same.

    In it are the model's revision, the tokenizer and its template, the number formats, whether
    the engine is deterministic, this version of it, and the job's frozen options.
    """
    facts = {
        "pagemill": jobs.__version__,
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
