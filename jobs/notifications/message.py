"""What is sent: the same bytes at each attempt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jobs.records.evaluations import NotificationRecord

VERSION = 1  # of the shape; a change that receivers must know of is another one


def message(told: NotificationRecord, storage: Path) -> bytes:
    """The body of the request, as docs/webhooks.md has it.

    Args:
        storage: where the storage lies; `output` is relative to it in SQL.
    """
    data: dict[str, Any] = dict(told.body)
    if data.get("output") is not None:
        data["output"] = str(storage / data["output"])
    shape = {
        "version": VERSION,
        "id": told.id,
        "event": told.event,
        "subject": told.subject,
        "created_at": told.created_at.isoformat(),
        "data": data,
    }
    return json.dumps(shape).encode()
