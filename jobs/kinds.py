"""What a job does with its rows."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class JobKind(StrEnum):
    GENERATE = "generate"  # go on with a prompt, or answer a chat
    SCORE = "score"  # tell how likely given continuations of a prompt are
    EMBED = "embed"  # turn a text into a vector


def kind_of_job(options: Mapping[str, Any]) -> JobKind:
    """The kind in a job's frozen options; those of a job that generates name none."""
    return JobKind(options.get("kind", JobKind.GENERATE))
