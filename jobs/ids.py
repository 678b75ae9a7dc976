"""Ids that sort by time."""

from __future__ import annotations

import secrets
import time

# RFC 4648's letters and digits, in the order of ASCII, so that ids sort by time.
_BASE32 = "234567abcdefghijklmnopqrstuvwxyz"


def new_id(prefix: str) -> str:
    """The prefix, `_`, and 20 characters: 48 bits of milliseconds, then 52 random bits."""
    number = (time.time_ns() // 1_000_000) << 52 | secrets.randbits(52)
    return f"{prefix}_" + "".join(_BASE32[(number >> shift) & 31] for shift in range(95, -1, -5))
