"""Broker URLs: which there may be, and what they mean to Celery.

Everything that a URL can have wrong is found here, before anything is submitted or loaded.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from jobs.errors import SettingsError
from jobs.shown_urls import ENCODE_PASSWORDS, each_url, without_password

VARIABLE = "PAGEMILL_BROKER_URL"
_TLS_KEYS = frozenset(
    {"ssl_cert_reqs", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname"}
)
# Parameters that a URL of each scheme may have.
_KEYS: Mapping[str, frozenset[str]] = {
    "memory": frozenset(),
    "redis": frozenset(),
    "rediss": _TLS_KEYS,
    "redis+socket": frozenset({"virtual_host"}),
    "sentinel": frozenset({"master_name"}),
}
_CERT_REQS = {
    "required": ssl.CERT_REQUIRED,
    "optional": ssl.CERT_OPTIONAL,
    "none": ssl.CERT_NONE,
}


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker as Celery is told of it.

    Attributes:
        url: for Celery, with the password and without what the other two say.
        options: transport options.
        tls: parameters of TLS, for `broker_use_ssl`; None where there is none.
    """

    url: str
    options: Mapping[str, Any] = field(default_factory=dict)
    tls: Mapping[str, Any] | None = None


def parse_broker_url(url: str) -> Broker:
    """What a URL means.

    Raises:
        SettingsError: it is none that can work; passwords are not in the message.
    """
    shown = shown_broker(url)
    if ";" in url:
        return _several_sentinels(url.split(";"), shown)
    parts, query = _split(url, shown)
    scheme = parts.scheme
    if scheme == "redis+socket":
        _check_database(query.get("virtual_host", "0"), shown)
        return Broker(url)
    if scheme != "memory":
        _check_database(parts.path.removeprefix("/") or "0", shown)
    plain = url.partition("?")[0]
    if scheme == "rediss":
        return Broker(plain, tls=_tls(query))
    if scheme == "sentinel":
        return Broker(plain, options={"master_name": _master_name(query)})
    return Broker(plain)


def shown_broker(url: str) -> str:
    """A broker URL, or several with `;` between them, that may be shown and logged.

    It may be one that cannot be parsed: everything that can be a password is hidden.
    """
    return ";".join(map(without_password, each_url(url)))


def _split(url: str, shown: str) -> tuple[SplitResult, dict[str, str]]:
    scheme = url.partition("://")[0].lower()
    if "://" not in url or scheme not in _KEYS:
        raise SettingsError(
            f"{VARIABLE} is {shown!r}, but messages go through Redis: write redis://, rediss:// "
            "(TLS), redis+socket:// or sentinel://; without a broker, leave it empty"
        )
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 (it is parsed only now)
    except ValueError:  # its text quotes the URL
        raise SettingsError(
            f"{VARIABLE} is {shown!r}: its host or its port is wrong; a port is a number from 0 "
            f"to 65535, and {ENCODE_PASSWORDS}"
        ) from None
    if parts.fragment or "@" in parts.path + parts.query:
        raise SettingsError(f"{VARIABLE} is {shown!r}, which is no URL: {ENCODE_PASSWORDS}")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(query.keys() - _KEYS[scheme])
    if unknown:
        known = ", ".join(sorted(_KEYS[scheme])) or "none"
        name = f" {unknown[0]!r}" if query[unknown[0]] else ""
        raise SettingsError(
            f"{VARIABLE} has an unknown parameter{name}; a {scheme}:// URL may have: {known}"
        )
    return parts, query


def _check_database(number: str, shown: str) -> None:
    if not number.isdecimal():
        raise SettingsError(
            f"{VARIABLE} is {shown!r}: the Redis database after its host must be a number, as in "
            f"redis://localhost:6379/0; {ENCODE_PASSWORDS}"
        )


def _tls(query: Mapping[str, str]) -> dict[str, Any]:
    """Certificates are checked unless the URL says otherwise."""
    wanted = query.get("ssl_cert_reqs", "required")
    if wanted not in _CERT_REQS:
        raise SettingsError(
            f"{VARIABLE} has an unknown ssl_cert_reqs; it must be one of {', '.join(_CERT_REQS)}"
        )
    check_host = query.get("ssl_check_hostname", str(wanted != "none")).lower() == "true"
    return {**query, "ssl_cert_reqs": _CERT_REQS[wanted], "ssl_check_hostname": check_host}


def _several_sentinels(urls: list[str], shown: str) -> Broker:
    """One URL a sentinel; the parameters and the database stand in the last one."""
    if not all("://" in url for url in urls):
        raise SettingsError(
            f"{VARIABLE} is {shown!r}: a ; parts the URLs of several sentinels, and "
            f"{ENCODE_PASSWORDS}"
        )
    split = [_split(url, shown) for url in urls]
    if any(parts.scheme != "sentinel" for parts, _ in split):
        raise SettingsError(f"{VARIABLE} has several URLs; only those of sentinels can be several")
    query = {name: value for _, found in split for name, value in found.items()}
    _check_database(split[-1][0].path.removeprefix("/") or "0", shown)
    return Broker(
        ";".join(url.partition("?")[0] for url in urls),
        options={"master_name": _master_name(query)},
    )


def _master_name(query: Mapping[str, str]) -> str:
    if not query.get("master_name"):
        raise SettingsError(
            f"{VARIABLE} must name the master that the sentinels watch, as in "
            "sentinel://host:26379/0?master_name=mymaster"
        )
    return query["master_name"]
