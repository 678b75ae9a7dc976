"""The way from the worker's threads to the engine and back, across deaths of the engine."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from engine.messages import (
    AbortRequests,
    AddRequests,
    Crashed,
    Ready,
    Refused,
    Report,
    TokenCounts,
)
from engine.request import Request, RequestOutput
from worker.engine_process import EngineProcess
from worker.errors import EngineLost, ModelUnavailable, WorkerError

log = logging.getLogger("pagemill.worker")

Sink = Callable[[RequestOutput], None]
MAX_FRUITLESS_DEATHS = 5


class EngineBridge:
    """Feeds requests of all chunks to one engine and hands each answer to its sink.

    When the engine dies, a new one is started and given every request that has no answer yet:
    whoever waits for answers does not notice. After `MAX_FRUITLESS_DEATHS` deaths in a row
    without one answer the bridge gives up and calls `on_failure`.

    Args:
        config: settings for `engine.config.EngineConfig`.
        on_failure: called once, from the bridge's thread, when no engine can be had any more.
    """

    def __init__(
        self, config: Mapping[str, Any], on_failure: Callable[[WorkerError], None]
    ) -> None:
        self._config = config
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._inflight: dict[str, tuple[Request, Sink]] = {}
        self._running: Mapping[str, TokenCounts] = {}
        self._fruitless_deaths = 0
        self._closing = False
        self._engine: EngineProcess | None = None
        self._thread = threading.Thread(target=self._serve, name="engine-bridge", daemon=True)

    def start(self) -> Ready:
        """Start the engine and wait until its model is loaded.

        Raises:
            ModelUnavailable: the engine refused the model or its settings.
            EngineLost: the engine died while it loaded.
        """
        ready = self._launch()
        self._thread.start()
        return ready

    def submit(self, requests: Sequence[Request], sink: Sink) -> None:
        """Queue requests; `sink` gets each answer, from the bridge's thread."""
        with self._lock:
            self._inflight.update((r.request_id, (r, sink)) for r in requests)
            engine = self._engine
        if engine is not None:
            engine.send(AddRequests(tuple(requests)))

    def abort(self, request_ids: Iterable[str]) -> None:
        """Take requests back; none of them will reach its sink after this returned."""
        with self._lock:
            gone = tuple(i for i in request_ids if self._inflight.pop(i, None))
            engine = self._engine
        if gone and engine is not None:
            engine.send(AbortRequests(gone))

    def running(self) -> Mapping[str, TokenCounts]:
        """Token counts of the requests that the engine was computing about half a second ago."""
        return self._running

    def close(self) -> None:
        """End the engine; requests without an answer are dropped."""
        with self._lock:
            self._closing = True
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
        if self._thread.is_alive():
            self._thread.join()

    def _launch(self) -> Ready:
        engine = EngineProcess(self._config)
        message = engine.receive()
        if isinstance(message, Ready):
            with self._lock:
                self._engine = engine
                waiting = tuple(request for request, _ in self._inflight.values())
            log.info(
                "engine %d ready: %s on %s, %d blocks of %d tokens, loaded in %.1f s",
                engine.pid, message.dtype, message.device, message.num_blocks,
                message.block_size, message.load_seconds,
            )  # fmt: skip
            if waiting:
                engine.send(AddRequests(waiting))
            return message
        status = engine.close()
        if isinstance(message, Refused):
            raise ModelUnavailable(message.message)
        detail = f": {message.message}" if isinstance(message, Crashed) else ""
        raise EngineLost(f"the engine died while it loaded (exit status {status}){detail}")

    def _serve(self) -> None:
        try:
            self._serve_until_closed()
        except WorkerError as error:
            self._on_failure(error)
        except Exception as error:  # a bug; but nobody may wait for answers in vain
            log.exception("the bridge to the engine failed")
            self._on_failure(WorkerError(f"the bridge to the engine failed: {error}"))

    def _serve_until_closed(self) -> None:
        while not self._closing:
            engine = self._engine
            if engine is None:
                return
            self._receive_until_end(engine)
            with self._lock:
                if self._closing:
                    return
                self._engine = None
            self._running = {}
            status = engine.close()
            log.warning(
                "engine %d died (exit status %d) with %d requests inside; starting another",
                engine.pid, status, len(self._inflight),
            )  # fmt: skip
            self._relaunch(status)

    def _relaunch(self, status: int) -> None:
        while not self._closing:
            self._fruitless_deaths += 1
            if self._fruitless_deaths > MAX_FRUITLESS_DEATHS:
                raise EngineLost(
                    f"the engine died {self._fruitless_deaths} times in a row without "
                    f"finishing a row (last exit status {status}); see its log above"
                )
            try:
                self._launch()
            except EngineLost as error:
                log.warning("%s", error)
            else:
                return

    def _receive_until_end(self, engine: EngineProcess) -> None:
        while (message := engine.receive()) is not None:
            if isinstance(message, Report):
                if message.running is not None:
                    self._running = message.running
                for output in message.outputs:
                    self._deliver(output)
            elif isinstance(message, Crashed | Refused):
                log.error("engine %d: %s", engine.pid, message.message)

    def _deliver(self, output: RequestOutput) -> None:
        with self._lock:
            entry = self._inflight.pop(output.request_id, None)
            self._fruitless_deaths = 0
            # The sink runs under the lock so that `abort` can promise silence.
            if entry is not None:
                entry[1](output)
