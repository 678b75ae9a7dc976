"""Celery messages that wake workers.

A message names a job and a chunk and nothing else; what is true stands in SQL. So it may be
lost, doubled or late: the sweeper sends it again, and a claim decides who works.
"""

from __future__ import annotations

from collections.abc import Iterable

from celery import Celery

from jobs.settings import Settings

RUN_CHUNK = "pagemill.run_chunk"


def make_app(settings: Settings) -> Celery:
    """The Celery app of a deployment, configured the same for those who send and who work."""
    app = Celery("pagemill", broker=settings.broker_url, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        task_ignore_result=True,  # SQL is the result store
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options=_transport_options(settings),
        redis_socket_keepalive=True,
        redis_socket_timeout=30.0,
    )
    return app


def send(app: Celery, job_id: str, chunk_id: str) -> None:
    """Send one wake-up."""
    app.send_task(RUN_CHUNK, kwargs={"job_id": job_id, "chunk_id": chunk_id}, retry=False)


def wake_workers(settings: Settings, chunks: Iterable[tuple[str, str]]) -> int:
    """Wake workers for (job id, chunk id) pairs; returns how many messages were sent.

    Without a broker no message would leave this process: none is sent, and the sweeper of a
    worker finds the chunks in the job tables.
    """
    if not settings.has_broker:
        return 0
    sent = 0
    with make_app(settings) as app:
        for job_id, chunk_id in chunks:
            send(app, job_id, chunk_id)
            sent += 1
    return sent


def _transport_options(settings: Settings) -> dict[str, object]:
    if not settings.has_broker:
        return {"polling_interval": 0.1}  # the in-process transport is polled
    return {"queue_order_strategy": "priority"}
