"""Whatever libraries say of a URL loses its secrets before it is written down."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from engine.logs import JsonFormatter
from jobs.errors import BrokerError
from jobs.logs import JsonLines
from jobs.scrubbing import Sieve, SievingFormatter
from jobs.settings import Settings, urls_in_env
from jobs.wake import Sender
from worker.engine_process import EngineProcess

pytestmark = pytest.mark.quick

SECRET = 'topw0rd"\\\n\u00e9'
URL = "redis://us:topw0rd%22%5C%0A%C3%A9@host:6379/0"
SENTINELS = "sentinel://:topw0rd@a:1;sentinel://:lowk3y@b:2/0?master_name=m"
FORMATTERS: list[Callable[[], logging.Formatter]] = [
    logging.Formatter,
    lambda: logging.Formatter("%(levelname)s %(name)s %(message)s %(url)s"),
    lambda: JsonLines("beat"),
    lambda: JsonFormatter("worker"),
]


@pytest.mark.parametrize("formatter", FORMATTERS)
@pytest.mark.parametrize("text", [URL, SECRET, repr(SECRET), f"a {SECRET} b", "topw0rd%22%5C%0A"])
def test_no_part_of_a_record_holds_a_secret(
    formatter: Callable[[], logging.Formatter], text: str
) -> None:
    log = logging.Logger("topw0rd_is_no_name")
    log.name = "pagemill.test"
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(SievingFormatter(formatter(), Sieve([URL, SENTINELS])))
    log.addHandler(handler)
    try:
        raise OSError(f"cannot reach {text}") from ValueError(text)
    except OSError as error:
        log.exception("%s", error, extra={"url": text}, stack_info=True)
    log.error("one %s of two %s", text, extra={"url": text})
    log.warning(text, extra={"url": "lowk3y"})
    assert "topw0rd" not in written.getvalue()
    assert "lowk3y" not in written.getvalue()
    assert "Traceback" in written.getvalue()


def test_a_record_stays_as_it_is_for_other_handlers() -> None:
    record = logging.makeLogRecord({"msg": "at %s", "args": (URL,), "name": "topw0rd"})
    said = SievingFormatter(JsonFormatter("worker"), Sieve([URL])).format(record)
    assert json.loads(said)["message"] == "at redis://us:***@host:6379/0"
    assert json.loads(said)["logger"] == "topw0rd"
    assert record.getMessage() == f"at {URL}"


def test_urls_come_from_every_variable() -> None:
    env = {"PAGEMILL_DATABASE_URL": URL, "HTTPS_PROXY": "http://me:pw@proxy", "HOME": "/root"}
    assert urls_in_env(env) == (URL, "http://me:pw@proxy")


def test_what_a_broker_says_is_scrubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings("sqlite:////x.db", URL, "/tmp")
    with Sender(settings) as sender:
        quoting = OSError(f"no answer from {URL} ({SECRET})")

        def refuse() -> None:
            raise quoting

        monkeypatch.setattr(sender._app, "connection_for_write", refuse)
        with pytest.raises(BrokerError, match=r"no answer from redis://us:\*\*\*@host") as caught:
            sender.waiting("m")
    assert "topw0rd" not in str(caught.value)


def test_an_error_that_nobody_foresaw_is_scrubbed_too() -> None:
    code = (
        "import sys; from jobs.cli.group import uncaught; sys.excepthook = uncaught\n"
        "raise ZeroDivisionError('at ' + sys.argv[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, URL], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "ZeroDivisionError: at redis://us:***@host:6379/0" in done.stderr
    assert "topw0rd" not in done.stderr


def test_the_engine_has_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads files of models that come from elsewhere."""
    given: dict[str, str] = {}

    def popen(*_: object, env: dict[str, str], **__: object) -> None:
        given.update(env)
        raise InterruptedError

    monkeypatch.setattr(subprocess, "Popen", popen)
    credentials = ("DATABASE_URL", "BROKER_URL", "WEBHOOK_SECRET")
    for name in (*(f"PAGEMILL_{one}" for one in credentials), "PGPASSWORD"):
        monkeypatch.setenv(name, URL)
    with pytest.raises(InterruptedError):
        EngineProcess({})
    assert URL not in given.values()
    assert given["PATH"] == os.environ["PATH"]
