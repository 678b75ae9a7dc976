"""Commands and servers that are away, or not what they should be."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs import patience
from jobs.cli import why_it_waits
from jobs.errors import DatabaseUnavailable
from jobs.store import Store
from tests.support import postgres
from tests.support.child import child
from tests.support.command_line import CommandLine
from tests.support.deployment import Deployment
from tests.support.redis_server import RedisServer, free_port
from tests.support.still_clock import stand_still

PROMPT = [{"prompt": "a"}]
MODEL = Path("/no/such/model")


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path / "home")


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(tmp_path, monkeypatch)


@pytest.mark.parametrize("command", ["submit", "run", "worker"])
def test_a_broker_that_cannot_be_is_told_before_anything_is_done(deployment, command):
    deployment.env["PAGEMILL_BROKER_URL"] = "amqp://me:secret@host"
    file = [] if command == "worker" else ["-"]
    done = deployment.cli(command, *file, "--model", "m", expect=64, stdin=b'{"prompt": "a"}')
    assert "messages go through Redis" in done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr
    deployment.env["PAGEMILL_BROKER_URL"] = ""
    assert deployment.cli("list", "--json").stdout.strip() == "[]"


@pytest.mark.parametrize("hangs", [False, True], ids=["refuses", "hangs"])
def test_a_job_is_queued_though_redis_is_away(deployment, tmp_path, hangs):
    server = RedisServer(tmp_path / "redis")
    if hangs:
        server.start()
        server.freeze()
    began = time.monotonic()
    deployment.submit(PROMPT, MODEL)
    usual = time.monotonic() - began
    deployment.env["PAGEMILL_BROKER_URL"] = server.url_with("me:secret")
    try:
        began = time.monotonic()
        path = deployment.home / "input.jsonl"
        path.write_text('{"prompt": "a"}\n')
        done = deployment.cli("submit", str(path), "--model", str(MODEL))
        assert time.monotonic() - began < usual + 60  # and not for ever
    finally:
        server.kill()
    assert "Workers could not be woken: the broker redis://me:***@" in done.stderr
    assert "secret" not in done.stderr
    assert re.fullmatch(r"job_\w+\n", done.stdout)
    assert deployment.status(done.stdout.strip())["state"] == "queued"


def test_waiting_outlasts_a_database_that_is_away(tmp_path):
    url = postgres.create_database()
    try:
        deployment = Deployment(tmp_path / "home", database_url=url)
        job = deployment.submit(PROMPT, MODEL)
        with child(
            [sys.executable, "-P", "-m", "jobs", "wait", job],
            env=deployment.env, stderr=subprocess.PIPE, text=True,
        ) as waiting:  # fmt: skip
            until(waiting, "queued")  # the first look at the job is not repeated
            with postgres.nobody_let_in(url):
                assert "Waiting for the database" in until(waiting, "Waiting")
                time.sleep(1)
            deployment.cli("cancel", job)
            assert waiting.wait(120) == 2
            assert "cancelled" in waiting.stderr.read()
    finally:
        postgres.drop_database(url)


def failing_at_first(monkeypatch, method, times):
    """Let a method of the store find the database away so often."""
    real = getattr(Store, method)
    asked = []

    def ask(self, *arguments, **options):
        asked.append(method)
        if len(asked) <= times:
            raise DatabaseUnavailable("database: it is away")
        return real(self, *arguments, **options)

    monkeypatch.setattr(Store, method, ask)


@pytest.mark.parametrize("times", [1, 10**6], ids=["once", "for ever"])
@pytest.mark.parametrize("command", ["wait", "status"])
def test_a_database_that_is_away_when_it_is_asked_who_lives(cli, monkeypatch, command, times):
    job = cli.submit({"prompt": "a"})
    monkeypatch.setattr(why_it_waits, "PATIENCE_SECONDS", 0.0)
    failing_at_first(monkeypatch, "workers", times)
    if command == "wait":
        stand_still(monkeypatch)
        _, err = cli("wait", job, "--timeout", "1", expect=124)
        assert f"{job} has not ended within 1 s; " in err
        assert ("the database: it is away" in err) == (times > 1)
    else:
        cancel_later(cli, job, monkeypatch)
        _, err = cli("status", job, "--watch")
    assert err.count("\nno worker of the-model is alive") == (1 if times == 1 else 0)


def cancel_later(cli, job, monkeypatch):
    """Cancel the job when it was looked at some times."""
    real = Store.progress
    looked = []

    def look(self, job_id):
        looked.append(job_id)
        if len(looked) == 5:
            self.request_cancel(job)
        return real(self, job_id)

    monkeypatch.setattr(Store, "progress", look)


def test_a_database_that_is_away_when_the_time_of_wait_is_over(cli, monkeypatch):
    job = cli.submit({"prompt": "a"})
    real = Store.progress
    looked = []

    def away_after_a_look(self, job_id):
        looked.append(1)
        if len(looked) > 1:
            raise DatabaseUnavailable("database: it is away")
        return real(self, job_id)

    monkeypatch.setattr(Store, "progress", away_after_a_look)
    _, err = cli("wait", job, "--timeout", "0.5", expect=124)
    assert f"{job} has not ended within 0.5 s; the database: it is away" in err


@pytest.mark.quick
def test_a_driver_that_is_missing_is_named(cli: CommandLine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setenv("PAGEMILL_DATABASE_URL", "postgresql://me:secret@127.0.0.1/none")
    _, err = cli("list", expect=69)
    assert "--editable '.[postgres]'` in a clone" in err
    assert "secret" not in err


@pytest.mark.quick
def test_a_database_server_that_is_not_there_is_told_at_once(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    url = f"postgresql://me:secret@127.0.0.1:{free_port()}/none"
    monkeypatch.setenv("PAGEMILL_DATABASE_URL", url)
    began = time.monotonic()
    _, err = cli("list", expect=69)
    assert time.monotonic() - began < patience.AWAY_SECONDS
    assert "check that the server runs" in err
    assert "secret" not in err


def until(process: subprocess.Popen[str], said: str) -> str:
    """What a process writes to stderr, until it says that."""
    seen = ""
    for line in process.stderr:
        seen += line
        if said in line:
            return seen
    raise AssertionError(seen)
