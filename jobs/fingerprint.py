"""What decides the answers of a job, as it was submitted, in one hash.

Where the rows are computed has a fingerprint of its own (`worker.fingerprint`): there the model's
revision, the number formats and the engine come in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from jobs.job_folder import JobFolder
from jobs.parameters import MAX_SEED
from jobs.records import Plan


def job_fingerprint(
    model: str, options: Mapping[str, Any], seed: int, input_digests: Iterable[str]
) -> str:
    """SHA-256 of `{"input", "model", "options", "seed"}` as JSON with sorted keys.

    Name, priority and deadline are not in it: they decide when rows are answered, not how. The time
    limit of a row is, among the options: it decides which rows have an answer.
    """
    facts = {
        "model": model,
        "options": dict(options),
        "seed": seed,
        "input": list(input_digests),
    }
    return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()


def input_digests(folder: JobFolder, plan: Plan) -> list[str]:
    """SHA-256 of the normalized copy, and of the parts of refused rows in their order."""
    rejected = (window.rejected for window in plan.windows)
    paths = [plan.input_path, *(path for path in rejected if path is not None)]
    digests = []
    for path in paths:
        with folder.open(path) as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    return digests


def seed_of_key(idempotency_key: str) -> int:
    """The seed of a job that was submitted with a key and without a seed.

    A seed drawn at random would make the second copy another job than the first.
    """
    digest = hashlib.sha256(b"pagemill.seed:" + idempotency_key.encode()).digest()
    return int.from_bytes(digest[:8], "big") & MAX_SEED
