"""Log lines about one chunk."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from jobs.records import ChunkLease


class ChunkLog(logging.LoggerAdapter[logging.Logger]):
    """Names the chunk in each line, for people; and for machines its job and its lease too.

    More fields are given as `extra`, as to any logger.
    """

    def __init__(self, logger: logging.Logger, lease: ChunkLease) -> None:
        super().__init__(
            logger,
            {
                "job_id": lease.job_id,
                "chunk_id": lease.chunk_id,
                "epoch": lease.epoch,
                "worker_id": lease.owner,
            },
        )

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        fields = {**(self.extra or {}), **kwargs.get("extra", {})}
        return f"chunk {fields['chunk_id']}: {msg}", {**kwargs, "extra": fields}
