"""No message shows a secret of a URL, whatever the URL's form."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from sqlalchemy.exc import OperationalError

from jobs import evaluation_shape, patience
from jobs.broker_url import parse_broker_url, shown_broker
from jobs.database import Database
from jobs.errors import InputError, JobsError
from jobs.reading.sources import locate
from jobs.report import settings as report_settings
from jobs.settings import Settings
from jobs.shown_urls import scrubbed, shown_input, without_password

pytestmark = pytest.mark.quick

WORDS = ("topw0rd", "lowk3y")
PASSWORDS = [
    *(mark.join(WORDS) for mark in ("", *"@:/?#;&=%+ [],\"'\\\n", "://", "@@", "/@", "?a=", "#/")),
    *(mark + "".join(WORDS) + mark for mark in "@:/?#;&= "),
    "12" + "/".join(WORDS),
    "12?" + WORDS[0],
    quote("@/".join(WORDS), safe=""),
]
SERVERS = ["postgresql", "postgres", "postgresql+psycopg", "redis", "rediss", "redis+socket"]
SCHEMES = [*SERVERS, "sentinel", "amqp", "mysql", "sqlite", "s3", "https"]
SHAPES = [
    "{scheme}://me:{secret}@127.0.0.1:1/0",
    "{scheme}://:{secret}@127.0.0.1:1/0",
    "{scheme}://m@corp:{secret}@127.0.0.1:1/0",
    "{scheme}://me:{secret}@127.0.0.1:port/0",
    "{scheme}://me:{secret}@[::1/0",
    "{scheme}://me:{secret}@/0?host=/nonexistent",
    "{scheme}://127.0.0.1:1/0?password={secret}",
    "{scheme}://127.0.0.1:1/0?sslmode=disable&sslpassword={secret}&token={secret}",
    "{scheme}://me@127.0.0.1:1/0?sslmode={secret}@&sig={secret}",
    "{scheme}://127.0.0.1:1/0#{secret}",
    " {scheme}://me:{secret}@127.0.0.1:1/0",
    "{scheme}:/me:{secret}@127.0.0.1:1/0",
    "me:{secret}@127.0.0.1:1/0",
    "host=127.0.0.1 port=1 password={secret}",
]
# Only some passwords can be told from a path or from a host and its port here.
WITHOUT_HOST = "{scheme}://me:{secret}"
THREE_SLASHES = "{scheme}:///:{secret}@127.0.0.1:1/0"


def urls(schemes: list[str]) -> list[str]:
    product = itertools.product(schemes, [*SHAPES, WITHOUT_HOST, THREE_SLASHES], PASSWORDS)
    return [
        shape.format(scheme=scheme, secret=password)
        for scheme, shape, password in product
        if not (shape == WITHOUT_HOST and ("@" in password or password.startswith("12")))
        and not (shape == THREE_SLASHES and scheme == "sqlite")
    ]


def check(said: str, url: str) -> None:
    assert not any(word in said for word in WORDS), (url, said)


@pytest.mark.parametrize("shown", [without_password, shown_broker])
def test_no_secret_is_shown(shown: Callable[[str], str]) -> None:
    for url in urls(SCHEMES):
        check(shown(url), url)


def test_no_secret_is_in_a_refusal_of_a_broker() -> None:
    refused = 0
    for url in urls([*SERVERS[3:], "sentinel", "amqp"]):
        try:
            parse_broker_url(url)
        except JobsError as error:
            check(str(error), url)
            refused += 1
    assert refused > 1000


@pytest.mark.slow
def test_no_secret_is_in_what_a_database_says() -> None:
    """Refused, or away, or with a driver that quotes all that it was given."""
    refused = quoted = 0
    for url in urls([*SERVERS[:3], "mysql"]):
        try:
            database = Database(url)
        except JobsError as error:
            check(str(error), url)
            refused += 1
            continue
        given = database.engine.dialect.create_connect_args(database.url)[1]
        whole = database.url.render_as_string(hide_password=False)
        for text in (whole, *map(repr, given.items()), *map(str, given.values())):
            failed = OperationalError("SELECT 1", None, psycopg.OperationalError(f'bad "{text}"'))
            check(str(database._in_words(failed)), url)
            quoted += 1
        database.close()
    assert refused > 300
    assert quoted > 300


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me@127.0.0.1:1/x?password=topw0rd",
        "postgresql://me:topw0rd@127.0.0.1:1/x?sslpassword=lowk3y&connect_timeout=1",
        "postgresql://me:topw0rd/lowk3y@127.0.0.1:1/x",
    ],
)
def test_no_secret_is_in_what_the_driver_says(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "AWAY_SECONDS", 0.1)
    database = Database(url)
    with pytest.raises(JobsError) as caught, database.read():
        pass
    check(str(caught.value), url)
    assert "127.0.0.1:1" in str(caught.value)


def test_no_secret_is_in_what_an_input_says() -> None:
    for url in urls(["nonesuch", "s3+x"]):
        if "://" in url:
            check(shown_input(url), url)
            with pytest.raises(InputError) as caught:
                locate(url)
            check(str(caught.value), url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://pagemill@db:5432/pagemill?sslmode=verify-full&sslrootcert=/etc/ca.pem",
        "postgresql+psycopg:///x?host=/var/run/postgresql",
        "sqlite:////home/me@work/a:b@c;d#e.db",
        "redis://[::1]:6379/0",
        "sentinel://a:26379;sentinel://b:26379/0?master_name=m",
        "file:///data/a:b@c.jsonl",
        "s3://bucket/date=2026-01-02/a@b.jsonl?region=eu-west-1",
        "hf://datasets/me/name@main/a.parquet",
        "abfs://container@account/a.jsonl",
    ],
)
def test_what_is_no_secret_is_shown(url: str) -> None:
    assert shown_broker(url) == url
    assert shown_input(url) == url or ";" in url


def test_a_path_is_shown_as_it_is() -> None:
    assert shown_input("me:a@b?c=d.jsonl") == "me:a@b?c=d.jsonl"


@pytest.mark.parametrize(
    ("url", "text", "said"),
    [
        ("redis://me:topw0rd@h", "no host topw0rd@h", "no host ***@h"),
        ("redis://me:top%20w0rd@h", "'top w0rd' and top%20w0rd", "'***' and ***"),
        ("redis://me:e@h", "e: the server", "***: the server"),
        ("s3://b?sig=a%2Bb4c", "no s3://b?sig=a%2Bb4c (a+b4c)", "no s3://b?sig=*** (***)"),
    ],
)
def test_a_message_of_another_is_scrubbed(url: str, text: str, said: str) -> None:
    assert scrubbed(text, url) == said


def test_the_settings_show_no_secret() -> None:
    for url in urls(["redis"]):
        try:
            shown = Settings.from_env({"PAGEMILL_BROKER_URL": url}).shown_broker_url
        except JobsError as error:
            shown = str(error)
        check(shown, url)


@pytest.mark.parametrize("shown", [evaluation_shape.shown_spec, report_settings.shown_spec])
def test_no_url_that_any_job_of_an_evaluation_tells_is_shown(
    shown: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> None:
    secret = "https://hooks.example.com/T0/s3cret?key=s3cret"
    spec: dict[str, Any] = {
        "inputs": ["https://u:s3cret@example.com/rows.jsonl", "/a://b"],
        "notify": [secret],
        "submit": {"notify": secret, "max_tokens": 4},
        "scorers": [
            {"name": "j", "scorer": "judge", "options": {"submit": {"notify": [secret, secret]}}},
            {"name": "s", "options": {"schema": {"properties": {"notify": {"type": "string"}}}}},
        ],
    }
    before = json.dumps(spec)
    found = shown(spec)
    assert "s3cret" not in json.dumps(found)
    assert found["submit"] == {"notify": "https://hooks.example.com/***", "max_tokens": 4}
    assert found["scorers"][1] == spec["scorers"][1]
    assert json.dumps(spec) == before


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:@/d?host=/run/pg", "postgresql://me:@/d?host=/run/pg"),
        ("postgresql://me:s@/d?host=%2Frun%2Fpg", "postgresql://me:***@/d?host=%2Frun%2Fpg"),
        ("postgresql:///d?host=/home/~me/pg", "postgresql:///d?host=/home/~me/pg"),
        ("postgresql:///d?host=a%40b", "postgresql:///d?host=***"),  # perhaps a password's end
        ("postgresql:///d?host=/run&password=s", "postgresql:///d?host=/run&password=***"),
    ],
)
def test_the_host_of_a_socket_is_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
