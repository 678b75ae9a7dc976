"""A signature by which a receiver knows that a message is ours, and of when it is."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence


def signature(body: bytes, secrets: Sequence[str], at: int) -> str:
    """The header `Pagemill-Signature`: `t=<unix time>,v1=<hex>`, a `v1` for each secret.

    Each is the HMAC-SHA256 of `<unix time>.<body>`, so that an old message cannot be sent again
    under a new time.
    """
    signed = f"{at}.".encode() + body
    made = (hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest() for secret in secrets)
    return ",".join([f"t={at}", *(f"v1={one}" for one in made)])
