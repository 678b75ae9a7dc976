"""Whatever someone writes into the broker: nothing of it is executed, and the worker works on."""

from __future__ import annotations

import json
import marshal
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kombu
import pytest
from celery.worker import state

from jobs.database import upgrade
from jobs.settings import Settings
from jobs.wake import RUN_CHUNK, Sender, make_app, queue_of
from tests.support.deployment import wait_for
from tests.support.drainer import MODEL, Drainer
from tests.support.job_store import new_job
from tests.support.redis_server import RedisServer
from worker.app import Consumer, stop_consuming

pytestmark = pytest.mark.filterwarnings("ignore::celery.exceptions.CPendingDeprecationWarning")

TASK_HEADERS = {"lang": "py", "task": RUN_CHUNK, "id": "1", "argsrepr": "", "kwargsrepr": ""}


class MakesAFolder:
    """Unpickled, it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self._folder,)


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    with RedisServer(tmp_path / "redis") as redis:
        url = f"sqlite:///{tmp_path}/jobs.db"
        upgrade(url)
        yield Settings(url, redis.url, str(tmp_path), queue="hostile")


def test_a_consumer_without_a_broker_looks_often_whether_it_is_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Celery's own loop would look every two seconds."""
    waited: list[float] = []

    def wait(self: Any, timeout: float) -> None:
        waited.append(timeout)
        if len(waited) == 3:
            stop_consuming()
        raise TimeoutError

    monkeypatch.setattr(kombu.Connection, "drain_events", wait)
    settings = Settings.from_env({"PAGEMILL_HOME": "/nowhere"})
    state.should_stop = None  # of an earlier consumer in this process
    consumer = Consumer(settings, MODEL, 1, "host:1:x", lambda: None, lambda: None)
    consumer.run()
    consumer.close()
    assert set(waited) == {0.1}


def bodies(marker: Path) -> list[tuple[str, str, bytes]]:
    """Content type, encoding and body."""
    pickled = pickle.dumps(([MakesAFolder(marker)], {}, {}))
    yaml = f"!!python/object/apply:os.mkdir ['{marker}']".encode()
    named = json.dumps([[], {"__reduce__": ["os.mkdir", str(marker)]}, {}]).encode()
    return [
        ("application/x-python-serialize", "binary", pickled),
        ("application/x-yaml", "utf-8", yaml),
        ("application/x-msgpack", "binary", b"\x93\x90\x80\x80"),
        ("application/x-unknown", "binary", pickled),
        ("application/json", "utf-8", pickled.hex().encode()),
        ("application/json", "utf-8", b"{"),
        ("application/json", "utf-8", named),
        ("application/json", "nonesuch", b"[[], {}, {}]"),
        ("application/json", "utf-8", b"[" * 100_000),
        ("application/octet-stream", "binary", marshal.dumps([1])),
        ("application/data", "binary", b"\xff\x00"),
    ]


def test_hostile_messages_execute_nothing_and_the_worker_lives(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    marker = tmp_path / "executed"
    os.rmdir(_unpickled(marker))  # the attack itself works
    with Drainer(settings) as drainer:
        attacker = make_app(settings)
        with attacker.connection_for_write() as connection:
            producer = attacker.amqp.Producer(connection, auto_declare=False)
            for content_type, encoding, body in bodies(marker):
                producer.publish(
                    body, content_type=content_type, content_encoding=encoding,
                    routing_key=queue_of(MODEL), headers=TASK_HEADERS, retry=False,
                )  # fmt: skip
            for name, arguments, options in tasks(marker):
                attacker.send_task(
                    name, args=arguments, queue=queue_of(MODEL), producer=producer, **options
                )
            for item in envelopes():
                connection.default_channel.client.lpush(queue_of(MODEL), item)
        attacker.control.broadcast("shutdown")
        wait_for("an empty queue", lambda: waiting(settings) == 0)
        before = drainer.slots.woken_at
        job = drainer.store.insert_job(new_job((30,))).id
        drainer.drained(job, 60)
        assert drainer.slots.woken_at > before, "messages still bring the chunks"
        assert drainer.consumer.connected
        assert not drainer.draining.is_set()
        attacker.close()
    assert not marker.exists()
    assert set(drainer.done.values()) == {1}
    assert "chunks are taken from the database" not in caplog.text
    assert caplog.text.count("an entry of the queue is no message of ours") >= 8


def waiting(settings: Settings) -> int:
    with Sender(settings) as sender:
        return sender.waiting(MODEL)


def tasks(marker: Path) -> list[tuple[str, list[Any], dict[str, Any]]]:
    """Names that are no task of ours, and ours with what it does not take."""
    signature = {"task": "os.mkdir", "args": [str(marker)], "kwargs": {}, "options": {}}
    return [
        ("os.mkdir", [str(marker)], {}),
        ("builtins.eval", [f"__import__('os').mkdir({str(marker)!r})"], {}),
        ("celery.map", [signature, [[str(marker)]]], {}),
        ("celery.chain", [[signature]], {}),
        (RUN_CHUNK, [str(marker)], {}),
        (RUN_CHUNK, ["a", "b", "c"], {"countdown": 10_000}),
        (RUN_CHUNK, [{"job": 1}, None], {"link": [signature], "time_limit": 1}),
        (RUN_CHUNK, ["../../x", "'; DROP TABLE jobs; --"], {"priority": 0}),
    ]


def envelopes() -> list[bytes]:
    """What is no message at all."""
    message = {
        "body": "W1tdLCB7fSwge31d", "content-type": "application/json",
        "content-encoding": "utf-8", "headers": TASK_HEADERS,
        "properties": {
            "body_encoding": "base64", "delivery_tag": "1",
            "delivery_info": {"exchange": "", "routing_key": "x"},
        },
    }  # fmt: skip
    damaged = [
        {**message, "properties": 5},
        {**message, "properties": {"delivery_tag": "2"}},
        {**message, "properties": {**message["properties"], "delivery_tag": None}},
        {**message, "properties": {**message["properties"], "delivery_tag": {}}},
        {**message, "properties": {**message["properties"], "body_encoding": "nonesuch"}},
        {**message, "body": "="},
        {**message, "headers": {"task": RUN_CHUNK}},
        {**message, "headers": {**TASK_HEADERS, "task": []}},
        {**message, "headers": {**TASK_HEADERS, "eta": 5}},
        {**message, "headers": {**TASK_HEADERS, "expires": {}}},
        {**message, "headers": {**TASK_HEADERS, "id": []}},
    ]
    return [
        *(json.dumps(body).encode() for body in damaged),
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'{"body": 5}',
        pickle.dumps([1]),
        b"\xff" * 100,
        b"[" * 100_000,
    ]


def _unpickled(marker: Path) -> Path:
    pickle.loads(pickle.dumps(MakesAFolder(marker)))
    return marker


def test_a_worker_knows_one_task_and_those_that_celery_cannot_be_without(
    settings: Settings,
) -> None:
    with Drainer(settings) as drainer:
        names = set(drainer.consumer._app.tasks)
        accepted = set(drainer.consumer._app.conf.accept_content)
    assert {name for name in names if not name.startswith("celery.")} == {RUN_CHUNK}
    assert accepted == {"json"}
