"""The broker: is it there, and does it take messages?"""

from __future__ import annotations

from collections.abc import Iterator

from jobs.doctor.findings import Finding, fault, warning, well
from jobs.settings import Settings

ADVICE = (
    "see that Redis runs and PAGEMILL_BROKER_URL is right, on every machine; until then workers "
    "look into the database, and jobs go on"
)


def check_broker(settings: Settings) -> Iterator[Finding]:
    """Whether the broker can be used.

    Raises:
        BrokerError: it cannot be reached, or refuses.
    """
    if not settings.has_broker:
        yield well("broker", "none is configured; workers look into the database every second")
        return
    from jobs.wake import Sender

    with Sender(settings) as sender:
        said = sender.server()
    shown = f"Redis {said['redis_version']} at {settings.shown_broker_url}"
    if said.get("role") != "master":
        yield fault("broker", f"{shown} is a replica, which takes no messages", "name its master")
        return
    most, used = said.get("maxmemory", 0), said.get("used_memory", 0)
    if most and used > 0.9 * most:
        yield warning(
            "broker",
            f"{shown} is almost full: {used / most:.0%} of its maxmemory are used",
            "raise maxmemory, or move what else lies in it; messages of pagemill are small",
        )
        return
    yield well("broker", shown)
