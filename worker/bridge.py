"""The way from the worker's threads to the engine and back, across deaths of the engine."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from engine.messages import (
    AbortRequests,
    AddRequests,
    Crashed,
    Located,
    Ready,
    Refused,
    Report,
    TokenCounts,
)
from engine.request import Request, RequestOutput
from worker.engine_meter import EngineMeter
from worker.engine_process import EngineProcess
from worker.errors import EngineLost, ModelUnavailable, WorkerError
from worker.watchdog import Watchdog

log = logging.getLogger("pagemill.worker")

Sink = Callable[[RequestOutput], None]
MAX_FRUITLESS_DEATHS = 5
ENGINE_TIMEOUT = 300.0
SLOWER_LOADS = 4  # how many times longer than the first one a later load may take


class EngineBridge:
    """Feeds requests of all chunks to one engine and hands each answer to its sink.

    When the engine dies, a new one is started and given every request that has no answer yet:
    whoever waits for answers does not notice. After `MAX_FRUITLESS_DEATHS` deaths in a row
    without one answer the bridge gives up and calls `on_failure`. An engine that has requests
    reports at least twice a second, or after each step that is longer; one that is silent for
    `engine_timeout` hangs, and is killed.

    Args:
        config: settings for `engine.config.EngineConfig`.
        on_failure: called once, from the bridge's thread, when no engine can be had any more.
        meter: takes what the engines report of themselves.
        engine_timeout: seconds.
        engine_env: variables of the engine's environment, besides those of this process.
        started: the first engine, with the same `config`, where it runs already.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        on_failure: Callable[[WorkerError], None],
        *,
        meter: EngineMeter | None = None,
        engine_timeout: float = ENGINE_TIMEOUT,
        engine_env: Mapping[str, str] | None = None,
        started: EngineProcess | None = None,
    ) -> None:
        self._config = config
        self._on_failure = on_failure
        self._meter = EngineMeter() if meter is None else meter
        self._engine_timeout = self._load_timeout = engine_timeout
        self._engine_env = engine_env
        self._watchdog = Watchdog(engine_timeout)
        self._lock = threading.Lock()
        self._inflight: dict[str, tuple[Request, Sink]] = {}
        self._running: Mapping[str, TokenCounts] = {}
        self._fruitless_deaths = 0
        self._closing = False
        self._engine: EngineProcess | None = None
        self._loading: EngineProcess | None = started
        self._thread = threading.Thread(target=self._serve, name="engine-bridge", daemon=True)

    def start(self, on_located: Callable[[str], None] | None = None) -> Ready:
        """Start the engine and wait until its model is loaded.

        Args:
            on_located: called with the model's folder as soon as it is known, while the engine
                loads the weights; what it raises ends the start.

        Raises:
            ModelUnavailable: the engine refused the model or its settings.
            EngineLost: the engine died while it loaded.
        """
        began = time.monotonic()
        # No limit: it may have a model to download, which takes what it takes.
        ready = self._launch(None, on_located)
        self._load_timeout += SLOWER_LOADS * (time.monotonic() - began)
        self._watchdog.start()
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
            if self._loading is not None:
                self._loading.kill()
        if engine is not None:
            engine.close()
        if self._thread.is_alive():
            self._thread.join()
        self._watchdog.stop()

    def _launch(
        self, timeout: float | None, on_located: Callable[[str], None] | None = None
    ) -> Ready:
        engine = self._loading or EngineProcess(self._config, self._engine_env)
        with self._lock:
            self._loading = engine
            if self._closing:
                engine.kill()
        if timeout is not None:
            self._watchdog.watch(engine, lambda: True, timeout)
        message = engine.receive()
        if isinstance(message, Located):
            try:
                if on_located is not None:
                    on_located(message.model_path)
            except BaseException:
                engine.kill()
                engine.close()
                raise
            message = engine.receive()
        with self._lock:
            self._loading = None
            ready = message if isinstance(message, Ready) and not self._closing else None
            self._engine = None if ready is None else engine
            waiting = tuple(request for request, _ in self._inflight.values())
        if ready is not None:
            self._watchdog.watch(engine, lambda: bool(self._inflight), self._engine_timeout)
            _log_ready(engine, ready)
            if waiting:
                engine.send(AddRequests(waiting))
            return ready
        self._watchdog.forget()
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
            self._watchdog.forget()
            self._meter.engine_died()
            status = engine.close()
            log.warning(
                "engine %d died (exit status %d) with %d requests inside; starting another",
                engine.pid, status, len(self._inflight),
                extra={"event": "engine_died", "engine_pid": engine.pid, "exit_status": status,
                       "requests": len(self._inflight)},
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
                self._launch(self._load_timeout)
            except EngineLost as error:
                if not self._closing:
                    log.warning("%s", error, extra={"event": "engine_died"})
            else:
                self._meter.engine_restarted()
                return

    def _receive_until_end(self, engine: EngineProcess) -> None:
        while (message := engine.receive()) is not None:
            self._watchdog.heard()
            if isinstance(message, Report):
                if message.stats is not None:
                    self._meter.take(message.stats)
                if message.running is not None:
                    self._running = message.running
                for output in message.outputs:
                    self._deliver(output)
            elif isinstance(message, Crashed | Refused):
                log.error(
                    "engine %d: %s", engine.pid, message.message,
                    extra={"event": "engine_crashed", "engine_pid": engine.pid},
                )  # fmt: skip

    def _deliver(self, output: RequestOutput) -> None:
        with self._lock:
            entry = self._inflight.pop(output.request_id, None)
            self._fruitless_deaths = 0
            # The sink runs under the lock so that `abort` can promise silence.
            if entry is not None:
                entry[1](output)


def _log_ready(engine: EngineProcess, ready: Ready) -> None:
    log.info(
        "engine %d ready: %s on %s, %d blocks of %d tokens, loaded in %.1f s",
        engine.pid, ready.dtype, ready.device, ready.num_blocks, ready.block_size,
        ready.load_seconds,
        extra={"event": "engine_ready", "engine_pid": engine.pid, "dtype": ready.dtype,
               "device": ready.device, "blocks": ready.num_blocks,
               "seconds": ready.load_seconds},
    )  # fmt: skip
