"""All settings of a deployment, in one object.

The environment is read here and nowhere else in `jobs`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import platformdirs

from jobs.broker_url import parse_broker_url, shown_broker
from jobs.durations import parse_duration
from jobs.errors import SettingsError
from jobs.reading.unpacking import MAX_UNPACKED_BYTES

LONGEST_LEASE_SECONDS = 3600.0
MEMORY_BROKER = "memory://localhost"
_QUEUE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# Of a host that may be told, an address, or all hosts of a domain.
_HOST = re.compile(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f:]*:[0-9a-f:.]*")
_SHORTEST_SECRET = 16
_PERIODS = (
    "lease_seconds",
    "sweep_seconds",
    "spool_seconds",
    "heartbeat_seconds",
    "engine_timeout_seconds",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Where a deployment keeps its things, and how patient it is.

    Attributes:
        database_url: SQLAlchemy URL; every process of the deployment must reach it.
        broker_url: Celery broker. With `memory://localhost` no message leaves a process, and the
            sweeper of each worker finds the work in the job tables.
        storage_url: folder (or `file://` URL) for inputs, spools, parts and outputs.
        queue: how all keys begin that this deployment has in the broker. Deployments that share
            a broker need names of their own; all processes of one deployment have the same.
        lease_seconds: a chunk whose worker was silent for so long is given to another.
        sweep_seconds: how often each worker looks for lost chunks and unfinished jobs.
        spool_seconds: how often finished rows of a running chunk are written down.
        heartbeat_seconds: how often a worker renews its leases, reports counts, and reads
            cancellations.
        engine_timeout_seconds: an engine that has work and says nothing for so long hangs; its
            worker kills it and starts another. No step may take longer.
        max_unpacked_bytes: a compressed or Parquet input that becomes larger than this, and than
            ten times its stored size, is refused.
        retention_seconds: jobs that ended so long ago are deleted; None keeps them for ever.
        webhook_secret: what is told to URLs is signed with it; with several, and spaces between
            them, with each, so that it can be changed.
        webhook_hosts: the only hosts that may be told, with commas between them; `*.example.com`
            is every host below that. Any may if there are none.
        default_database: no database was named: it is the SQLite file in the user's data
            folder, which pagemill makes by itself.
    """

    database_url: str
    broker_url: str
    storage_url: str
    queue: str = "pagemill"
    lease_seconds: float = 60.0
    sweep_seconds: float = 15.0
    spool_seconds: float = 2.0
    heartbeat_seconds: float = 1.0
    engine_timeout_seconds: float = 300.0
    max_unpacked_bytes: int = MAX_UNPACKED_BYTES
    retention_seconds: float | None = None
    webhook_secret: str = field(default="", repr=False)
    webhook_hosts: tuple[str, ...] = ()
    default_database: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        parse_broker_url(self.broker_url)
        if not _QUEUE_NAME.fullmatch(self.queue):
            raise SettingsError(
                f"PAGEMILL_QUEUE is {self.queue!r}; it must be 1 to 64 letters, digits, "
                "underscores, dots or dashes"
            )
        for name in _PERIODS:
            if not getattr(self, name) > 0:
                raise SettingsError(f"{name} is {getattr(self, name)}; it must be over 0")
        for secret in self.webhook_secrets:
            if len(secret) < _SHORTEST_SECRET:
                raise SettingsError(
                    f"PAGEMILL_WEBHOOK_SECRET has {len(secret)} characters; use "
                    f"{_SHORTEST_SECRET} at least, such as those of `openssl rand -hex 32`"
                )
        for host in self.webhook_hosts:
            if not _HOST.fullmatch(host):
                raise SettingsError(
                    f"PAGEMILL_WEBHOOK_HOSTS names {host!r}; it must be names of hosts, without "
                    "scheme, port and path, such as hooks.example.com,*.internal.example.com"
                )
        if self.max_unpacked_bytes <= 0:
            raise SettingsError(
                f"max_unpacked_bytes is {self.max_unpacked_bytes}; it must be over 0"
            )
        if self.lease_seconds > LONGEST_LEASE_SECONDS:
            raise SettingsError(
                f"lease_seconds is {self.lease_seconds:g}; it must be at most "
                f"{LONGEST_LEASE_SECONDS:g}, since chunks of a worker that dies wait for so long"
            )
        if self.heartbeat_seconds * 2 > self.lease_seconds:
            raise SettingsError(
                f"heartbeat_seconds is {self.heartbeat_seconds}, but a lease lasts only "
                f"{self.lease_seconds} s; renew at least twice in a lease"
            )

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> Self:
        """Read `PAGEMILL_*`; what is not set lies in the user's data folder."""
        data = Path(
            env.get("PAGEMILL_HOME") or platformdirs.user_data_dir("pagemill", appauthor=False)
        )
        periods = {
            name: _seconds(env, f"PAGEMILL_{name.upper()}")
            for name in _PERIODS
            if env.get(f"PAGEMILL_{name.upper()}")
        }
        return cls(
            database_url=env.get("PAGEMILL_DATABASE_URL") or f"sqlite:///{data / 'pagemill.db'}",
            broker_url=env.get("PAGEMILL_BROKER_URL") or MEMORY_BROKER,
            storage_url=env.get("PAGEMILL_STORAGE_URL") or str(data / "storage"),
            queue=env.get("PAGEMILL_QUEUE") or "pagemill",
            retention_seconds=_retention(env.get("PAGEMILL_RETENTION")),
            webhook_secret=env.get("PAGEMILL_WEBHOOK_SECRET") or "",
            webhook_hosts=_hosts(env.get("PAGEMILL_WEBHOOK_HOSTS") or ""),
            default_database=not env.get("PAGEMILL_DATABASE_URL"),
            max_unpacked_bytes=_bytes(env, "PAGEMILL_MAX_UNPACKED_BYTES", MAX_UNPACKED_BYTES),
            **periods,
        )

    def to_env(self) -> dict[str, str]:
        """The environment from which `from_env` makes the same settings (for a child process)."""
        return {
            "PAGEMILL_DATABASE_URL": self.database_url,
            "PAGEMILL_BROKER_URL": self.broker_url,
            "PAGEMILL_STORAGE_URL": self.storage_url,
            "PAGEMILL_QUEUE": self.queue,
            "PAGEMILL_LEASE_SECONDS": str(self.lease_seconds),
            "PAGEMILL_SWEEP_SECONDS": str(self.sweep_seconds),
            "PAGEMILL_SPOOL_SECONDS": str(self.spool_seconds),
            "PAGEMILL_HEARTBEAT_SECONDS": str(self.heartbeat_seconds),
            "PAGEMILL_ENGINE_TIMEOUT_SECONDS": str(self.engine_timeout_seconds),
            "PAGEMILL_MAX_UNPACKED_BYTES": str(self.max_unpacked_bytes),
            "PAGEMILL_RETENTION": ""
            if self.retention_seconds is None
            else f"{self.retention_seconds:f}s",
            "PAGEMILL_WEBHOOK_SECRET": self.webhook_secret,
            "PAGEMILL_WEBHOOK_HOSTS": ",".join(self.webhook_hosts),
        }

    @property
    def webhook_secrets(self) -> tuple[str, ...]:
        return tuple(self.webhook_secret.split())

    @property
    def has_broker(self) -> bool:
        return not self.broker_url.startswith("memory:")

    @property
    def shown_broker_url(self) -> str:
        """The broker's URL without passwords."""
        return shown_broker(self.broker_url)


def urls_in_env(env: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Every URL that the environment holds, and whose secrets nobody may be shown."""
    return tuple(value for value in env.values() if "://" in value)


def words_in_env(env: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Secrets of the environment that are no URLs, and that nobody may be shown."""
    return tuple((env.get("PAGEMILL_WEBHOOK_SECRET") or "").split())


def _hosts(text: str) -> tuple[str, ...]:
    return tuple(host for host in (one.strip().lower() for one in text.split(",")) if host)


def _retention(text: str | None) -> float | None:
    if not text:
        return None
    try:
        duration = parse_duration(text)
    except OverflowError:
        duration = None
    if not duration:
        raise SettingsError(
            f"PAGEMILL_RETENTION is {text!r}; it must be a duration over 0, such as 30d or 12h"
        )
    return duration.total_seconds()


def _seconds(env: Mapping[str, str], name: str) -> float:
    try:
        return float(env[name])
    except ValueError:
        raise SettingsError(f"{name} is {env[name]!r}; it must be a number of seconds") from None


def _bytes(env: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(env.get(name) or default)
    except ValueError:
        raise SettingsError(f"{name} is {env[name]!r}; it must be a number of bytes") from None
