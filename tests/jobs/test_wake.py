"""Wake-ups are sent by the name of the task, or not at all."""

from __future__ import annotations

import dataclasses
import json

import pytest
from kombu import Connection

from jobs.settings import Settings
from jobs.wake import RUN_CHUNK, make_app, send, wake_workers

pytestmark = pytest.mark.quick

SETTINGS = Settings.from_env({"PAGEMILL_HOME": "/nowhere"})


def test_without_a_broker_nothing_is_sent() -> None:
    assert wake_workers(SETTINGS, [("job", "chunk")]) == 0


def test_with_a_broker_each_chunk_gets_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, str]] = []
    monkeypatch.setattr("jobs.wake.send", lambda app, job, chunk: sent.append((job, chunk)))
    settings = dataclasses.replace(SETTINGS, broker_url="redis://localhost:6379/0")

    assert wake_workers(settings, [("j", "c1"), ("j", "c2")]) == 2
    assert sent == [("j", "c1"), ("j", "c2")]


def test_a_message_is_json_that_names_the_job_and_the_chunk() -> None:
    settings = dataclasses.replace(SETTINGS, broker_url="memory://")
    with make_app(settings) as app:
        send(app, "job_1", "job_1-v1-000003")
    with Connection("memory://") as connection, connection.SimpleQueue("celery") as queue:
        message = queue.get(timeout=5)
        message.ack()

    assert message.headers["task"] == RUN_CHUNK == "pagemill.run_chunk"
    assert message.content_type == "application/json"
    arguments = json.loads(message.body)
    assert arguments[0] == []
    assert arguments[1] == {"job_id": "job_1", "chunk_id": "job_1-v1-000003"}
