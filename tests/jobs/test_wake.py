"""Wake-ups are sent by the name of the task, in the order of priority, or not at all."""

from __future__ import annotations

import dataclasses
import json
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kombu import Connection

from jobs.errors import BrokerError
from jobs.records import WakeUp
from jobs.settings import Settings
from jobs.wake import (
    ENOUGH_WAITING,
    RUN_CHUNK,
    Sender,
    make_app,
    message_priority,
    queue_of,
    wake_workers,
)
from tests.support import redis_server
from tests.support.redis_server import RedisServer, free_port

pytestmark = pytest.mark.quick

SETTINGS = Settings.from_env({"PAGEMILL_HOME": "/nowhere"})


def wake_ups(count: int, model: str = "m", priority: int = 0) -> list[WakeUp]:
    return [WakeUp(f"job{priority}", f"chunk{n}", model, priority) for n in range(count)]


def few(limit: int) -> list[WakeUp]:
    """One wake-up."""
    assert limit > 0
    return wake_ups(1)


def settings_of(url: str) -> Settings:
    return dataclasses.replace(SETTINGS, broker_url=url, queue=f"test-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def settings() -> Iterator[Settings]:
    """Of a Redis that other tests use too."""
    made = settings_of(redis_server.shared_url())
    yield made
    redis_server.remove_keys(made.broker_url, made.queue)


def take(settings: Settings, model: str = "m") -> list[tuple[str, str]]:
    """The waiting messages, in the order in which a worker gets them."""
    taken = []
    with Sender(settings) as sender, make_app(settings) as app:
        connection = app.connection_for_read()
        queue = connection.SimpleQueue(queue_of(model))
        while sender.waiting(model):
            message = queue.get(timeout=60)
            message.ack()
            kwargs = json.loads(message.body)[1]
            taken.append((kwargs["job_id"], kwargs["chunk_id"]))
        queue.close()
        connection.release()
    return taken


def test_without_a_broker_nothing_is_sent() -> None:
    wake_workers(SETTINGS, "m", asked_in_vain)


def test_each_chunk_gets_a_message_in_the_queue_of_its_model(settings: Settings) -> None:
    with Sender(settings) as sender:
        sender.send([*wake_ups(2), *wake_ups(1, "other")])
        assert [sender.waiting(model) for model in ("m", "other", "none")] == [2, 1, 0]
    assert take(settings) == [("job0", "chunk0"), ("job0", "chunk1")]


def test_no_more_messages_wait_than_are_enough(settings: Settings) -> None:
    asked = []

    def due(limit: int) -> list[WakeUp]:
        asked.append(limit)
        return wake_ups(min(limit, 70))

    with Sender(settings) as sender:
        assert [sender.top_up("m", due) for _ in range(3)] == [70, 100, 100]
    assert asked == [100, 30]
    with Sender(settings) as sender:
        assert sender.waiting("m") == ENOUGH_WAITING


def test_a_higher_priority_overtakes(settings: Settings) -> None:
    with Sender(settings) as sender:
        for priority in (0, -5, 1, 50):
            sender.send(wake_ups(2, priority=priority))
    order = ["job50", "job1", "job0", "job-5"]
    assert [job for job, _ in take(settings)] == [job for job in order for _ in range(2)]


def test_deployments_on_one_redis_do_not_meet(settings: Settings) -> None:
    other = dataclasses.replace(settings, queue=f"{settings.queue}2")
    wake_workers(settings, "m", few)
    assert take(other) == []
    assert take(settings) != []
    redis_server.remove_keys(other.broker_url, other.queue)


def test_nothing_grows_in_redis(settings: Settings) -> None:
    for _ in range(2):
        wake_workers(settings, "m", lambda _: wake_ups(50))
        assert len(take(settings)) == 50
        keys = redis_server.keys(settings.broker_url, settings.queue)
        queue = queue_of("m")
        assert keys == {f"_kombu.binding.{queue}", f"_kombu.binding_permanent.{queue}"}


def test_a_message_is_json_that_names_the_job_and_the_chunk() -> None:
    settings = dataclasses.replace(SETTINGS, broker_url="memory://")
    model = "of this test"  # whoever is in this process shares what waits there
    with Sender(settings) as sender:
        sender.send([WakeUp("job_1", "job_1-v1-000003", model, 0)])
    with Connection("memory://") as connection, connection.SimpleQueue(queue_of(model)) as queue:
        message = queue.get(timeout=60)
        message.ack()

    assert message.headers["task"] == RUN_CHUNK == "pagemill.run_chunk"
    assert message.content_type == "application/json"
    arguments = json.loads(message.body)
    assert arguments[0] == []
    assert arguments[1] == {"job_id": "job_1", "chunk_id": "job_1-v1-000003"}


def test_priorities_of_jobs_fit_into_those_of_redis() -> None:
    priorities = [message_priority(p) for p in (-(2**31), -1, 0, 1, 9, 10, 2**31 - 1)]
    assert priorities == [9, 9, 6, 3, 3, 0, 0]


def test_the_name_of_a_queue_has_its_limits() -> None:
    assert queue_of("org/model") == "chunks.org/model"
    long, other = (queue_of("x" * length) for length in (5000, 5001))
    assert long != other
    assert len(long) < 100


# ---- ways to Redis


def test_through_a_unix_socket(tmp_path: Path) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="redis-") as short,  # as the path of a socket must be
        RedisServer(tmp_path, "--unixsocket", f"{short}/redis.sock") as server,
    ):
        settings = settings_of(f"redis+socket://{short}/redis.sock?virtual_host=2")
        wake_workers(settings, "m", few)
        assert take(settings) == [("job0", "chunk0")]
        with server.client() as client:
            assert list(client.info("keyspace")) == ["db2"]


def test_through_sentinels(tmp_path: Path) -> None:
    with (
        RedisServer(tmp_path / "master") as server,
        RedisServer.sentinel(tmp_path / "sentinel", "ours", server) as sentinel,
    ):
        here = f"sentinel://127.0.0.1:{sentinel.port}"
        settings = settings_of(f"{here};{here}/0?master_name=ours")
        wake_workers(settings, "m", few)
        assert take(settings) == [("job0", "chunk0")]


# ---- brokers that are away


def asked_in_vain(limit: int) -> list[WakeUp]:
    raise AssertionError("what is not sent must not count as sent")


def test_a_broker_that_is_not_there_is_told_at_once() -> None:
    settings = settings_of(f"redis://me:secret@127.0.0.1:{free_port()}/0")
    began = time.monotonic()
    with pytest.raises(BrokerError, match=r"redis://me:\*\*\*@127.*refused") as caught:
        wake_workers(settings, "m", asked_in_vain)
    assert time.monotonic() - began < 15
    assert "secret" not in str(caught.value)


@pytest.mark.slow
def test_a_broker_that_does_not_answer_is_told_soon(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        server.freeze()
        began = time.monotonic()
        with pytest.raises(BrokerError, match="Timeout"):
            wake_workers(settings_of(server.url), "m", asked_in_vain)
        assert time.monotonic() - began < 30  # and not for ever


def test_a_password_is_needed_and_never_shown(tmp_path: Path) -> None:
    with RedisServer(tmp_path, "--requirepass", "secret") as server:
        wrong = server.url_with(":wrong")
        for url, said in ((server.url, "uthentication"), (wrong, "invalid username-password")):
            with pytest.raises(BrokerError, match=said) as caught:
                wake_workers(settings_of(url), "m", asked_in_vain)
            assert "wrong" not in str(caught.value)
        settings = settings_of(server.url_with(":secret"))
        wake_workers(settings, "m", few)
        assert take(settings) == [("job0", "chunk0")]


def test_a_sender_connects_anew_after_its_broker_was_away(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server, Sender(settings_of(server.url)) as sender:
        sender.send(wake_ups(1))
        server.kill()
        with pytest.raises(BrokerError):
            sender.send(wake_ups(1))
        server.start()
        assert sender.waiting("m") == 1  # it was written down
        sender.send(wake_ups(1))
        assert sender.waiting("m") == 2
