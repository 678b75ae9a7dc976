"""URLs as they may be shown, logged and stored: without passwords, keys and signatures.

A URL may be one that nobody can parse, since it is then that messages show it. Where it is not
certain which part is a secret, all that can be one is hidden.
"""

from __future__ import annotations

import json
import re
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit

HIDDEN = "***"
ENCODE_PASSWORDS = (
    "in a user name or a password, each of @ : / ? # ; must be percent-encoded (%40 for @, "
    "%3A for :, %2F for /, %3F for ?, %23 for #, %3B for ;)"
)

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+._-]*)://")
_NAME = re.compile(r"[\w.~%+-]*")
_RESERVED = re.compile(r"[@:/?#;]")
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]*\]|[^:\[\]]*)(?::\d+)?")
_PLAIN = re.compile(r"[\w.~/\\-]*(?::\d+)?")
_HARMLESS_VALUE = re.compile(r"[\w./,~-]*")
# Parameters whose values are no secrets. A list of those that are would never be whole.
_HARMLESS = {
    *("application_name", "channel_binding", "client_encoding", "connect_timeout", "dbname"),
    *("gssencmode", "host", "hostaddr", "keepalives", "keepalives_count", "keepalives_idle"),
    *("keepalives_interval", "port", "sslcert", "sslcrl", "sslkey", "sslmode", "sslrootcert"),
    *("target_session_attrs", "tcp_user_timeout", "user"),  # PostgreSQL
    *("cache", "mode", "timeout", "uri"),  # SQLite
    *("master_name", "ssl_ca_certs", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname"),
    *("ssl_keyfile", "virtual_host"),  # Redis
    *("allow_bucket_creation", "endpoint_override", "region", "scheme"),  # object stores
}
_LOCAL = frozenset({"file", "sqlite", "sqlite+pysqlite"})
_SERVERS = re.compile(r"(postgres|redis|sentinel|amqp|mysql|mariadb)", re.IGNORECASE)
# Their user names are often tokens.
_WEB = frozenset({"http", "https"})
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")


def without_password(url: str) -> str:
    """A URL that may be shown and logged, whatever its form."""
    found = _SCHEME.search(url)
    # One quotation mark may stand in front, but no password.
    if found is None or found.start() > 1:
        return _without_scheme(url)
    scheme, rest = found.group(1).lower(), url[found.end() :]
    start = url[: found.end()]
    if scheme in _LOCAL and rest.startswith("/"):
        path, mark, query = _cut(rest, "?")
        return f"{start}{path}{mark}{_query(query)}"
    user, at, place = rest.rpartition("@")
    if at and ("?" in user or "#" in user):
        return f"{start}{HIDDEN}"  # a password, or a parameter: its end may be a secret too
    # A folder or a file of an object store, as in hf://datasets/name@revision/…
    in_path = "/" in user.partition("@")[0] and ":" not in user and not _SERVERS.match(scheme)
    if not at or in_path:
        user, at, place = "", "", rest
    path, mark, query = _cut(place, "?#;")
    if not at and not _ADDRESS.fullmatch(path.partition("/")[0]):
        return f"{start}{HIDDEN}"  # its host was left out perhaps: scheme://name:password
    return f"{start}{_user(scheme, user)}{at}{path}{_query(mark + query)}"


def shown_input(given: str) -> str:
    """An input that may be shown and stored: a path as it is, a URI without passwords."""
    return without_password(given) if "://" in given else given


def shown_webhook(url: str) -> str:
    """A URL to which something is told: only its scheme and host.

    Those of many services are secrets as they are, in their paths.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return HIDDEN
    # An @ after the host: a / in the password may have made a host of the user's name.
    if parts.scheme not in _WEB or not _HOST.fullmatch(host) or "@" in url.rpartition(host)[2]:
        return HIDDEN
    host = f"[{host}]" if ":" in host else host
    path = parts.path.strip("/") or parts.query or parts.fragment
    shown = f"{host}:{port}" if port else host
    return f"{parts.scheme}://{shown}/{HIDDEN if path else ''}"


def each_url(urls: str) -> list[str]:
    """The URLs of a list with `;` between them; before anything else a `;` is in a password."""
    return re.split(r";(?=[A-Za-z+]+://)", urls)


def scrubbed(text: str, url: str) -> str:
    """Another's message about a URL, or about several (see `each_url`), without their secrets."""
    urls = each_url(url)
    for one in urls:
        text = text.replace(one, without_password(one))
    for secret in sorted(set().union(*map(_secrets, urls)), key=len, reverse=True):
        # A short one is hidden where it is a word; else a password `e` would spoil every word.
        wanted = re.escape(secret) if len(secret) > 3 else rf"(?<!\w){re.escape(secret)}(?!\w)"
        text = re.sub(wanted, HIDDEN, text)
    return text


def _without_scheme(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    user, at, place = text.rpartition("@")
    known = at and _PLAIN.fullmatch(place) and not re.search(r"[?#=\s]", user)
    return f"{HIDDEN}@{place}" if known else HIDDEN


def _user(scheme: str, user: str) -> str:
    name, colon, password = user.partition(":")
    if not user or scheme in _WEB or _RESERVED.search(password) or not _NAME.fullmatch(name):
        return HIDDEN if user else ""
    return f"{name}:{HIDDEN if password else ''}" if colon else name


def _query(query: str) -> str:
    query, mark, _fragment = _cut(query, "#")
    pieces = re.split(r"([&;?])", query)
    pieces[::2] = [_parameter(piece) for piece in pieces[::2]]
    return "".join(pieces) + (mark and f"#{HIDDEN}")


def _parameter(piece: str) -> str:
    name, equals, value = piece.partition("=")
    if not equals:
        return HIDDEN if piece else ""
    if name in _HARMLESS and _HARMLESS_VALUE.fullmatch(unquote(value)):
        return piece
    return f"{name}={HIDDEN}" if _NAME.fullmatch(name) else HIDDEN


def _cut(text: str, marks: str) -> tuple[str, str, str]:
    """The text before the first of some characters, that character, and the rest."""
    found = re.search(f"[{re.escape(marks)}]", text)
    if found is None:
        return text, "", ""
    return text[: found.start()], found.group(), text[found.end() :]


def _secrets(url: str) -> set[str]:
    """What a message may quote of the secrets: as written, decoded, encoded, and in pieces."""
    rest = url.partition("://")[2] or url
    user, at, place = rest.rpartition("@")
    found = set()
    if at:
        name, colon, password = user.partition(":")
        found |= {password, *_RESERVED.split(password)} if colon else set()
        found |= {user} if not _NAME.fullmatch(name) else set()
    query, _, fragment = "".join(_cut(place, "?#;")[1:]).partition("#")
    found |= {fragment, *re.split(r"[@:/?#;&=]", fragment)}
    for piece in re.split(r"[&;?]", query):
        name, _, value = piece.partition("=")
        if _parameter(piece) != piece:
            found |= {value or name}
    found |= {unquote(text) for text in found} | {unquote_plus(text) for text in found}
    found |= {quote(text, safe=safe) for text in found for safe in ("", " +")}
    found |= {quote_plus(text) for text in found}
    # Drivers escape line feeds, or write spaces for them.
    found |= {repr(text)[1:-1] for text in found} | {" ".join(text.split()) for text in found}
    found |= {json.dumps(text)[1:-1] for text in found}
    return {text for text in found if text}
