"""A worker and its broker: whatever happens to the broker, each chunk is done, and once.

Redis, the consumer loop and the job tables are real; only the engine is missing.
"""

from __future__ import annotations

import dataclasses
import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from jobs.database import upgrade
from jobs.settings import Settings
from jobs.store import Store
from jobs.wake import ENOUGH_WAITING, Sender, make_app, wake_workers
from tests.support.drainer import MODEL, Drainer
from tests.support.job_store import new_job
from tests.support.redis_server import RedisServer
from worker.app import stop_consuming

# Celery announces a change of a default whenever it connects again.
pytestmark = pytest.mark.filterwarnings("ignore::celery.exceptions.CPendingDeprecationWarning")

AWAY, BACK = "chunks are taken from the database", "the broker is back"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that the test may ill-treat; it does not run yet."""
    server = RedisServer(tmp_path / "redis")
    yield server
    server.kill()


@pytest.fixture
def settings(redis: RedisServer, tmp_path: Path) -> Settings:
    url = f"sqlite:///{tmp_path}/jobs.db"
    upgrade(url)
    return Settings(url, redis.url, str(tmp_path), queue=f"test-{uuid.uuid4().hex[:8]}")


def submit(drainer: Drainer, chunks: int, **options: object) -> str:
    """Insert a job and wake workers for it, as `submit` does."""
    job = drainer.store.insert_job(new_job((chunks,), **options))  # type: ignore[arg-type]
    wake(drainer.settings, drainer.store, MODEL)
    return job.id


def wake(settings: Settings, store: Store, model: str) -> None:
    wake_workers(settings, model, lambda limit: store.chunks_to_wake(limit, model=model))


def insert(drainer: Drainer, chunks: int) -> str:
    """Insert a job of which no worker is told."""
    return drainer.store.insert_job(new_job((chunks,))).id


def each_once(drainer: Drainer, job: str, chunks: int) -> None:
    drainer.drained(job)
    mine = {chunk: n for chunk, n in drainer.done.items() if chunk.startswith(job)}
    assert len(mine) == chunks
    assert set(mine.values()) == {1}
    assert drainer.most <= drainer.options.concurrency


def waits(settings: Settings) -> int:
    with Sender(settings) as sender:
        return sender.waiting(MODEL)


def until(what: str, condition, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_messages_bring_the_chunks(redis, settings):
    redis.start()
    with Drainer(settings) as drainer:
        until("a connection", lambda: drainer.consumer.connected)
        each_once(drainer, submit(drainer, 20), 20)
        assert drainer.slots.woken_at > 0
        until("an empty queue", lambda: waits(settings) == 0)
    with redis.client() as client:
        left = set(client.scan_iter())
    prefix = f"{settings.queue}:_kombu."
    assert all(key.startswith(prefix) for key in left), "no message, no acknowledgement"


def test_of_a_large_job_few_messages_wait(redis, settings):
    redis.start()
    with Drainer(settings, seconds=0.0) as drainer:
        job = submit(drainer, 260)
        most = 0
        while drainer.store.job(job).chunks_left > 50:
            most = max(most, waits(settings))
        # Two that look at the same time send as many each.
        assert 0 < most <= 2 * ENOUGH_WAITING
        each_once(drainer, job, 260)


def test_a_job_of_higher_priority_is_served_first(redis, settings):
    redis.start()
    with Drainer(settings, slots=1) as drainer:
        drainer.gate.clear()
        low = submit(drainer, 12)
        until("a first chunk", lambda: drainer.running)
        high = submit(drainer, 3, priority=1)
        drainer.gate.set()
        for job in (high, low):
            drainer.drained(job)
    first = drainer.order.index(high)
    assert first <= 4
    assert drainer.order[first : first + 3] == [high] * 3


def test_a_broker_that_never_comes(redis, settings, caplog):
    caplog.set_level(logging.INFO)
    with Drainer(settings) as drainer:
        each_once(drainer, insert(drainer, 30), 30)
        began = time.monotonic()
        drainer.stop()
        assert time.monotonic() - began < 4
    assert AWAY in caplog.text
    assert BACK not in caplog.text


def test_a_broker_that_comes_later(redis, settings, caplog):
    caplog.set_level(logging.INFO)
    with Drainer(settings) as drainer:
        each_once(drainer, insert(drainer, 4), 4)
        redis.start()
        until("a connection", lambda: drainer.consumer.connected)
        until("the news", lambda: BACK in caplog.text)
        before = drainer.slots.woken_at
        each_once(drainer, submit(drainer, 4), 4)
        assert drainer.slots.woken_at > before


def test_a_broker_that_dies_and_is_started_again(redis, settings):
    redis.start()
    with Drainer(settings, seconds=0.1) as drainer:
        job = submit(drainer, 60)
        until("some chunks", lambda: len(drainer.done) > 5)
        redis.kill()
        count = len(drainer.done)
        until("more chunks", lambda: len(drainer.done) > count + 10)
        redis.start()
        each_once(drainer, job, 60)


def test_messages_that_are_thrown_away(redis, settings, caplog):
    """Others are sent before the worker has to help itself."""
    redis.start()
    with Drainer(settings) as drainer:
        job = submit(drainer, 40)
        until("some chunks", lambda: len(drainer.done) > 5)
        with redis.client() as client:
            client.flushall()
        each_once(drainer, job, 40)
    assert AWAY not in caplog.text


def test_connections_that_are_cut(redis, settings):
    redis.start()
    with Drainer(settings) as drainer:
        job = submit(drainer, 60)
        for enough in (5, 15, 25):
            until("some chunks", lambda enough=enough: len(drainer.done) > enough)
            with redis.client() as client:
                client.client_kill_filter(skipme=True)
        each_once(drainer, job, 60)


def test_a_broker_that_hangs(redis, settings, caplog):
    """Afterwards messages are taken again, though acknowledgements were lost."""
    redis.start()
    with Drainer(settings, seconds=0.3) as drainer:
        job = submit(drainer, 40)
        until("some chunks", lambda: len(drainer.done) > 3)
        redis.freeze()
        time.sleep(7)
        count = len(drainer.done)
        until("more chunks", lambda: len(drainer.done) > count + 2)
        redis.thaw()
        each_once(drainer, job, 40)
        before = drainer.slots.woken_at
        each_once(drainer, submit(drainer, 2), 2)
        until("a message", lambda: drainer.slots.woken_at > before)


def test_a_hanging_broker_does_not_keep_a_worker(redis, settings):
    redis.start()
    with Drainer(settings, seconds=0.3) as drainer:
        submit(drainer, 40)
        until("some chunks", lambda: len(drainer.done) > 3)
        redis.freeze()
        began = time.monotonic()
        drainer.stop()
        assert time.monotonic() - began < 15


def test_a_broker_without_memory(redis, settings, caplog):
    redis.start()
    with Drainer(settings) as drainer:
        job = submit(drainer, 40)
        until("some chunks", lambda: len(drainer.done) > 5)
        with redis.client() as client:
            client.config_set("maxmemory", "1")
        count = len(drainer.done)
        until("more chunks", lambda: len(drainer.done) > count + 10)
        time.sleep(2)
        with redis.client() as client:
            client.config_set("maxmemory", "0")
        each_once(drainer, job, 40)
    talk = [r for r in caplog.records if r.name.startswith("celery")]
    assert 0 < len(talk) < 8, "an attempt that fails five times a second is logged once"
    assert not any(r.exc_info for r in talk)


def test_redeliveries_do_no_harm(redis, settings):
    """Another client thinks that messages are lost after a moment, and sends them again."""
    redis.start()
    hasty = make_app(settings)
    hasty.conf.broker_transport_options["visibility_timeout"] = 0.1
    with (
        closing(hasty),
        Drainer(settings, seconds=0.5) as drainer,
        hasty.connection_for_read() as connection,
    ):
        job = submit(drainer, 12)
        channel = connection.default_channel
        restored = []  # a worker takes them from the queue again before anybody can look
        restore = channel._do_restore_message
        channel._do_restore_message = lambda *message: (
            restored.append(message),
            restore(*message),
        )
        while drainer.store.job(job).chunks_left:
            channel.qos.restore_visible(interval=1)
            time.sleep(0.1)
        assert len(restored) > 3
        each_once(drainer, job, 12)
        until("an empty queue", lambda: waits(settings) == 0)


def test_two_models_do_not_take_each_others_messages(redis, settings):
    redis.start()
    with Drainer(settings) as drainer:
        drainer.store.insert_job(new_job((5,), model="other"))
        wake(settings, drainer.store, "other")
        each_once(drainer, submit(drainer, 5), 5)
    with Sender(settings) as sender:
        assert sender.waiting("other") == 5


def test_a_consumer_that_crashes(redis, settings):
    """By an error of Celery or of ours that nobody foresaw."""
    redis.start()
    with Drainer(settings) as drainer:
        until("a connection", lambda: drainer.consumer.connected)
        drainer.consumer._controller.hub.call_soon(crash)
        until("its end", lambda: not drainer.consumer.connected)
        each_once(drainer, insert(drainer, 10), 10)


def crash() -> None:
    raise ZeroDivisionError


def test_a_user_of_redis_that_may_touch_our_keys_only(redis, settings):
    redis.start()
    with redis.client() as client:
        client.acl_setuser(
            "us", enabled=True, passwords=["+secret"], keys=[f"{settings.queue}:*"],
            categories=["+@all", "-@admin", "-@dangerous"],
        )  # fmt: skip
        client.config_set("requirepass", "other")
    ours = dataclasses.replace(settings, broker_url=redis.url_with("us:secret"))
    with Drainer(ours) as drainer:
        until("a connection", lambda: drainer.consumer.connected)
        each_once(drainer, submit(drainer, 10), 10)
        assert drainer.slots.woken_at > 0


def test_without_a_broker_a_worker_wakes_itself(settings):
    alone = dataclasses.replace(settings, broker_url="memory://localhost")
    with Drainer(alone) as drainer:
        each_once(drainer, insert(drainer, 20), 20)
        assert drainer.slots.woken_at > 0
        stop_consuming()
        until("the consumer's end", lambda: not drainer.consumer.connected)
        each_once(drainer, insert(drainer, 20), 20)
