"""Which URLs may be told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from jobs.errors import UsageError
from jobs.shown_urls import ENCODE_PASSWORDS, shown_webhook

MAX_URLS = 5
MAX_LENGTH = 2048
# What a request line may hold as it is.
_WRITTEN = re.compile(r"[!-~]+")


def checked_urls(urls: Sequence[str], hosts: Sequence[str], option: str = "--notify") -> list[str]:
    """URLs that can be told, each once.

    Args:
        hosts: those that may be told (`Settings.webhook_hosts`); any, if there are none.
        option: what they were given as.

    Raises:
        UsageError: one of them cannot be, or there are too many.
    """
    each = list(dict.fromkeys(urls))
    for url in each:
        reason = refusal(url, hosts)
        if reason is not None:
            raise UsageError(f"{option} {shown_webhook(url)}: {reason}")
    if len(each) > MAX_URLS:
        raise UsageError(f"{option} names {len(each)} URLs; {MAX_URLS} at most can be told")
    return each


def refusal(url: str, hosts: Sequence[str]) -> str | None:
    """Why a URL cannot be told, in a sentence; None if it can."""
    if len(url) > MAX_LENGTH:
        return f"it has {len(url):,} characters; {MAX_LENGTH:,} at most are possible"
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        return f"it is no URL; {ENCODE_PASSWORDS}"
    if parts.scheme not in ("http", "https"):
        return "it must begin with https:// or http://"
    if not host:
        return "it has no host; it must look like https://example.com/path"
    if not _WRITTEN.fullmatch(url):
        return "spaces, and what is not ASCII, must be percent-encoded (of a host, as xn--…)"
    if hosts and not allowed(host, hosts):
        return f"its host is not among those of PAGEMILL_WEBHOOK_HOSTS ({', '.join(hosts)})"
    return None


def allowed(host: str, hosts: Sequence[str]) -> bool:
    """Whether a host is one of those; `*.example.com` is every host below example.com."""
    host = host.lower().rstrip(".")
    return any(host.endswith(one[1:]) if one.startswith("*.") else host == one for one in hosts)
