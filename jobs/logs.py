"""Logging of a long-lived process of this package: lines for people, or a JSON object a line.

The lines have the form of those of a worker, so that one reader takes both; the code is not the
worker's, since `jobs` imports neither it nor the engine.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from jobs.scrubbing import scrub_logs

_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
# What a record has by itself; everything else came through `extra=`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_NOISY = ("alembic", "celery", "kombu")


def configure_logging(process: str, *, as_json: bool = False, level: str = "info") -> None:
    """Log to standard error.

    Args:
        process: JSON lines say that they are from this process, and its id.
        level: debug, info, warning or error.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(process) if as_json else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    scrub_logs()
    logging.captureWarnings(True)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)


class JsonLines(logging.Formatter):
    """`{"ts": …, "level": …, "logger": …, "message": …, "process": …, "pid": …}`, and what came
    through `extra=`; `exception` where there is a traceback."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: dict[str, Any] = {
            "ts": at.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": self._process,
            "pid": record.process,
        }
        for name, value in vars(record).items():
            if name not in _OWN:
                fields.setdefault(name, value)
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = record.exc_text or self.formatException(record.exc_info)
        return json.dumps(fields, default=str)
