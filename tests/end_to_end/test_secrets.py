"""No password, key or signature is in anything that pagemill writes, whatever succeeds or fails."""

from __future__ import annotations

import contextlib
import re
import signal
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq
import pytest
from sqlalchemy import MetaData, select

from jobs.database import Database
from tests.support import postgres
from tests.support.crashes import ENGINE
from tests.support.deployment import Deployment, RunningWorker, wait_for
from tests.support.object_store import object_store
from tests.support.redis_server import RedisServer, free_port

# Those that open something, and those that are wrong; each is one of its kind, and in two words,
# since a message may quote a part only.
SECRETS = {
    "database": "daTabasew0rd/aNd+m0re",
    "broker": "brOkerw0rd@aNd#m0re",
    "input": "inPutw0rd/aNd=m0re",
    "signature": "siGnaturew0rd aNd&m0re",
    "wrong": 'wroNgw0rd:aNd?m0re"',
}
WORDS = [secret.partition("w0rd")[0] for secret in SECRETS.values()] + ["aNd", "m0re"]
ROWS = b'{"prompt": "a", "max_tokens": 3}\n{"prompt": "b", "max_tokens": 3}\n{"prompt": 5}\n'


def encoded(name: str) -> str:
    return quote(SECRETS[name], safe="")


def wrong(url: str) -> str:
    """A URL with another password."""
    changed = re.sub(r":[^:/@]+@", f":{encoded('wrong')}@", url)
    assert changed != url
    return changed


class Evidence:
    """Everything that was written, by where."""

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}

    def add(self, where: str, content: str | bytes) -> None:
        self.texts[where] = content.encode() if isinstance(content, str) else content

    def command(self, deployment: Deployment, *arguments: str, expect: int) -> str:
        done = deployment.cli("--debug", *arguments, expect=expect)
        self.add(f"{' '.join(arguments)[:60]} ({len(self.texts)})", done.stdout + done.stderr)
        return done.stdout.strip()

    def folder(self, folder: Path) -> None:
        for path in folder.rglob("*"):
            if path.is_file():
                self.add(str(path), path.read_bytes())
            if path.suffix == ".parquet":
                with pq.ParquetFile(path) as file:
                    self.add(f"rows of {path}", repr(file.read().to_pylist()))
                    self.add(f"metadata of {path}", repr(file.schema_arrow.metadata))

    def tables(self, url: str) -> None:
        database = Database(url)
        tables = MetaData()
        tables.reflect(database.engine, views=True)
        with database.read() as connection:
            for name, table in tables.tables.items():
                rows = connection.execute(select(table)).all()
                self.add(f"table {name}", repr(rows))
        database.close()

    def check(self) -> None:
        for where, content in self.texts.items():
            for word in WORDS:
                assert word.encode() not in content, f"{word} is in {where}:\n{content.decode()}"


@pytest.fixture
def evidence() -> Evidence:
    return Evidence()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Deployment]:
    """A deployment whose database and broker ask for passwords."""
    empty = postgres.create_database()
    redis = RedisServer(tmp_path / "redis", "--requirepass", SECRETS["broker"])
    role = f"secrets_{uuid.uuid4().hex[:8]}"
    try:
        with redis, postgres.owned_with_a_password(empty, role, SECRETS["database"]) as url:
            broker = redis.url_with(f":{encoded('broker')}")
            yield Deployment(tmp_path / "home", database_url=url, broker_url=broker)
    finally:
        postgres.drop_database(empty)


@contextlib.contextmanager
def other(deployment: Deployment, **variables: str) -> Iterator[Deployment]:
    """The deployment with other settings."""
    before = deployment.env
    deployment.env = {**before, **{f"PAGEMILL_{k.upper()}": v for k, v in variables.items()}}
    try:
        yield deployment
    finally:
        deployment.env = before


def input_uri(port: int, name: str) -> str:
    return (
        f"s3://us:{encoded('input')}@bucket/{name}?scheme=http&region=here"
        f"&endpoint_override=127.0.0.1:{port}"
    )


def test_no_secret_is_written_anywhere(
    guarded: Deployment, tiny_model: Path, evidence: Evidence
) -> None:
    """A job from its submit to its results, with everything that can be said about it."""
    model = str(tiny_model)
    with other(guarded, log_level="debug"), object_store({"/bucket/rows.jsonl": ROWS}) as port:
        job = evidence.command(
            guarded, "submit", input_uri(port, "rows.jsonl"), "--model", model, expect=0
        ).partition("\n")[0]
        evidence.command(guarded, "submit", input_uri(port, "x.jsonl"), "--model", model, expect=65)
        with guarded.worker(tiny_model, *ENGINE, "--metrics-port", str(free_port())) as worker:
            wait_for("a worker", lambda: "metrics at http" in worker.logged())
            evidence.command(guarded, "wait", job, expect=1)  # one row is wrong
            evidence.add("metrics", metrics_page(worker))
            for command in ("list", "workers"):
                evidence.command(guarded, command, "--json", expect=0)
            for command in ("status", "errors"):
                evidence.command(guarded, command, job, "--json", expect=0)
            evidence.command(guarded, "results", job, "-o", "answers.parquet", expect=0)
            for command in ("cancel", "retry"):
                evidence.command(guarded, command, job, expect=75)
            worker.signal(signal.SIGTERM)
            worker.wait()
    evidence.tables(guarded.settings.database_url)
    evidence.folder(guarded.home)
    assert len(evidence.texts) > 30
    evidence.check()


def metrics_page(worker: RunningWorker) -> str:
    found = re.search(r"metrics at (http://[^/\s]+)", worker.logged())
    assert found is not None
    pages = []
    for path in ("/metrics", "/healthz"):
        with urllib.request.urlopen(found[1] + path) as page:
            pages.append(page.read().decode())
    return "".join(pages)


WEB = f"nonesuch://us:{encoded('input')}@host/a.jsonl?sig={encoded('signature')}"


def test_no_secret_is_in_what_fails(
    guarded: Deployment, tiny_model: Path, evidence: Evidence
) -> None:
    """Servers that are away or refuse, with tracebacks and every line of the logs."""
    rows = guarded.home / "rows.jsonl"
    rows.write_bytes(ROWS)
    submit = ("submit", str(rows), "--model", str(tiny_model))
    settings = guarded.settings
    away = re.sub(r":\d+/0$", f":{free_port()}/0", settings.broker_url)
    for broker_url in (wrong(settings.broker_url), away, f"{away}?{encoded('signature')}"):
        with other(guarded, broker_url=broker_url, log_level="debug"):
            evidence.command(guarded, *submit, expect=64 if "?" in broker_url else 0)
    evidence.command(guarded, "submit", WEB, "--model", "m", expect=65)
    lost = settings.database_url.replace("?host=", "?host=/nowhere")
    for database_url in (wrong(settings.database_url), lost, "x" + settings.database_url):
        with other(guarded, database_url=database_url):
            evidence.command(guarded, "list", expect=64 if database_url[0] == "x" else 69)
    with (
        other(guarded, broker_url=wrong(settings.broker_url), log_level="debug"),
        guarded.worker(tiny_model, *ENGINE, "--log-format", "json") as worker,
    ):
        wait_for("a warning", lambda: "chunks are taken from" in worker.logged())
        with postgres.nobody_let_in(settings.database_url):
            wait_for("a traceback", lambda: "Traceback" in worker.logged())
    evidence.folder(guarded.home)
    assert sum(b"Traceback" in text for text in evidence.texts.values()) >= 6
    evidence.check()
