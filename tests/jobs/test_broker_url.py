"""Which brokers there may be, and what their URLs mean."""

from __future__ import annotations

import ssl

import pytest

from jobs.broker_url import Broker, parse_broker_url, shown_broker
from jobs.errors import SettingsError
from jobs.settings import Settings

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    "url",
    [
        "memory://localhost",
        "redis://",
        "redis://localhost",
        "redis://localhost:6379/15",
        "redis://me:secret@10.0.0.1:6379/0",
        "redis://:s%2Fcr@t@[::1]:6379/0",
        "redis+socket:///run/redis.sock",
        "redis+socket:///run/redis.sock?virtual_host=3",
    ],
)
def test_most_urls_are_taken_as_they_are(url: str) -> None:
    assert parse_broker_url(url) == Broker(url)


def test_certificates_are_checked_unless_the_url_says_otherwise() -> None:
    broker = parse_broker_url("rediss://:secret@host:6380/0")
    assert broker.url == "rediss://:secret@host:6380/0"
    assert broker.tls == {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
    broker = parse_broker_url("rediss://host/0?ssl_ca_certs=/ca.pem&ssl_check_hostname=false")
    assert broker.url == "rediss://host/0"
    assert broker.tls == {
        "ssl_ca_certs": "/ca.pem",
        "ssl_cert_reqs": ssl.CERT_REQUIRED,
        "ssl_check_hostname": False,
    }
    assert parse_broker_url("rediss://host/0?ssl_cert_reqs=none").tls == {
        "ssl_cert_reqs": ssl.CERT_NONE,
        "ssl_check_hostname": False,
    }


def test_sentinels_name_their_master() -> None:
    one = parse_broker_url("sentinel://a:26379/0?master_name=m")
    assert one == Broker("sentinel://a:26379/0", {"master_name": "m"})
    two = parse_broker_url("sentinel://:pw@a:1;sentinel://:pw@b:2/3?master_name=m")
    assert two == Broker("sentinel://:pw@a:1;sentinel://:pw@b:2/3", {"master_name": "m"})


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("localhost:6379", "'localhost:6379', but messages go through Redis"),
        ("amqp://guest:secret@host", r"'amqp://guest:\*\*\*@host', but messages go through Redis"),
        ("redis://:secret@host:x/0", r"'redis://:\*\*\*@host:x/0': its host or its port is wrong"),
        ("redis://host:70000/0", "a port is a number from 0 to 65535"),
        ("redis://host/jobs", "'redis://host/jobs': the Redis database after its host must be a"),
        ("redis+socket:///s?virtual_host=x", "Redis database after its host must be a number"),
        ("redis://host/0?ssl_cert_reqs=none", "parameter 'ssl_cert_reqs'; .* may have: none"),
        ("rediss://host/0?ssl_cert_reqs=no", "unknown ssl_cert_reqs; it must be one of required,"),
        ("rediss://host/0?tls=1", "parameter 'tls'; a rediss:// URL may have: ssl_ca_certs,"),
        ("sentinel://host:26379/0", "must name the master"),
        ("redis://a/0;redis://b/0", "only those of sentinels"),
        ("redis://:pa;secret@host/0", r"'redis://\*\*\*@host/0': a ; parts .* %3B for ;"),
        ("redis://:pa#secret@host/0", r"'redis://\*\*\*': .* %23 for #"),
        ("redis:///:secret@host", r"'redis://\*\*\*@host', which is no URL: .*percent-encoded"),
    ],
)
def test_others_are_refused_without_showing_passwords(url: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as caught:
        Settings.from_env({"PAGEMILL_BROKER_URL": url})
    assert "PAGEMILL_BROKER_URL" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host/0", "redis://host/0"),
        ("redis://me@host/0", "redis://me@host/0"),
        ("redis://me:pw@host/0", "redis://me:***@host/0"),
        ("redis://:p@w/x@host/0", "redis://***@host/0"),
        ("sentinel://:a@x:1;sentinel://:b@y:2/0", "sentinel://:***@x:1;sentinel://:***@y:2/0"),
    ],
)
def test_what_is_shown_has_no_password(url: str, shown: str) -> None:
    assert shown_broker(url) == shown


@pytest.mark.parametrize("name", ["a b", "x" * 65, "jobs:2", "*"])
def test_a_queue_name_is_a_plain_word(name: str) -> None:
    with pytest.raises(SettingsError, match="PAGEMILL_QUEUE"):
        Settings.from_env({"PAGEMILL_QUEUE": name})
