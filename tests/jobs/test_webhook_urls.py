"""Which URLs may be told, how they are shown, and the settings of webhooks."""

from __future__ import annotations

import pytest

from jobs.errors import SettingsError, UsageError
from jobs.notifications.urls import MAX_LENGTH, checked_urls
from jobs.scrubbing import Sieve
from jobs.settings import Settings
from jobs.shown_urls import shown_webhook

pytestmark = pytest.mark.quick

SECRET = "0123456789abcdef"


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.com/services/T0/B0/x?token=a%20b",
        "http://localhost:8080",
        "http://us:pa%2Fss@[::1]:80/x",
        "HTTPS://EXAMPLE.com/",
    ],
)
def test_urls_that_may_be_told(url: str) -> None:
    assert checked_urls([url], ()) == [url]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://example.com/topsecret", r"must begin with https:// or http://"),
        ("file:///topsecret", r"must begin with https:// or http://"),
        ("example.com/topsecret", r"must begin with https:// or http://"),
        ("https:///topsecret", "it has no host"),
        ("https://[topsecret", "it is no URL"),
        ("https://me:topsecret", "it is no URL"),
        ("https://example.com:99999/topsecret", "it is no URL"),
        ("https://example.com/top secret", "must be percent-encoded"),
        ("https://example.com/x\r\nHost: topsecret", "must be percent-encoded"),
        ("https://exämple.com/topsecret", "must be percent-encoded"),
        (f"https://example.com/{'topsecret' * 300}", f"{MAX_LENGTH:,} at most"),
    ],
)
def test_urls_that_may_not(url: str, reason: str) -> None:
    with pytest.raises(UsageError, match=f"^--notify .*{reason}") as caught:
        checked_urls([url], ())
    assert "secret" not in str(caught.value)


def test_each_is_told_once_and_five_at_most() -> None:
    urls = [f"https://example.com/{number}" for number in range(5)]
    assert checked_urls([*urls, *urls], ()) == urls
    with pytest.raises(UsageError, match="names 6 URLs; 5 at most"):
        checked_urls([*urls, "https://example.com/"], ())


@pytest.mark.parametrize(
    ("host", "may"),
    [
        ("hooks.example.com", True),
        ("HOOKS.example.com", True),
        ("hooks.example.com.", True),
        ("a.internal.example", True),
        ("b.a.internal.example", True),
        ("internal.example", False),
        ("evilinternal.example", False),
        ("example.com", False),
        ("x.hooks.example.com", False),
        ("169.254.169.254", False),
        ("hooks.example.com@evil.example", False),
    ],
)
def test_only_some_hosts_may_be_told(host: str, may: bool) -> None:
    settings = Settings.from_env(
        {"PAGEMILL_WEBHOOK_HOSTS": " hooks.example.com, *.Internal.example ,"}
    )
    url = f"https://{host}/x"
    if may:
        assert checked_urls([url], settings.webhook_hosts) == [url]
    else:
        with pytest.raises(UsageError, match=r"not among those of PAGEMILL_WEBHOOK_HOSTS \(hooks"):
            checked_urls([url], settings.webhook_hosts)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example.com/services/T0/B0/topsecret", "https://hooks.example.com/***"),
        ("https://example.com?topsecret", "https://example.com/***"),
        ("https://example.com/", "https://example.com/"),
        ("http://me:topsecret@localhost:8080", "http://localhost:8080/"),
        ("http://[::1]:8080/topsecret", "http://[::1]:8080/***"),
        ("https://topsecret/x@example.com/", "***"),
        ("https://topsecret#@example.com/", "***"),
        ("topsecret", "***"),
        ("topsecret://example.com", "***"),
        ("https://[topsecret", "***"),
    ],
)
def test_only_the_host_is_shown(url: str, shown: str) -> None:
    assert shown_webhook(url) == shown


# ---- settings


def test_settings_reach_a_child_process() -> None:
    env = {
        "PAGEMILL_WEBHOOK_SECRET": f"{SECRET} another-{SECRET}",
        "PAGEMILL_WEBHOOK_HOSTS": "a.example,*.b.example,::1",
    }
    settings = Settings.from_env(env)
    assert settings.webhook_secrets == (SECRET, f"another-{SECRET}")
    assert settings.webhook_hosts == ("a.example", "*.b.example", "::1")
    assert Settings.from_env(settings.to_env()) == settings
    assert Settings.from_env({}).webhook_secrets == ()


def test_the_secret_is_in_no_text_of_the_settings() -> None:
    assert SECRET not in repr(Settings.from_env({"PAGEMILL_WEBHOOK_SECRET": SECRET}))


def test_a_short_secret_is_refused_and_not_shown() -> None:
    with pytest.raises(SettingsError, match="has 9 characters; use 16 at least") as caught:
        Settings.from_env({"PAGEMILL_WEBHOOK_SECRET": f"{SECRET} topsecret"})
    assert "topsecret" not in str(caught.value)


@pytest.mark.parametrize("host", ["https://a.example", "a.example:80", "a.example/x", "*", "a b"])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(SettingsError, match="it must be names of hosts"):
        Settings.from_env({"PAGEMILL_WEBHOOK_HOSTS": host})


def test_no_log_shows_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEMILL_WEBHOOK_SECRET", f"{SECRET} another-{SECRET}")
    assert Sieve.of_env()(f"signed with {SECRET}, another-{SECRET}") == "signed with ***, ***"
