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
    BatchChanged,
    Crashed,
    Loading,
    Located,
    Message,
    Ready,
    Refused,
    Report,
    TokenCounts,
)
from engine.request import Request, RequestOutput
from worker.engine_meter import EngineMeter
from worker.engine_process import EngineProcess
from worker.errors import EngineLost, ModelUnavailable, WorkerError
from worker.inflight import Inflight, Sink
from worker.watchdog import Watchdog

log = logging.getLogger("pagemill.worker")

MAX_FRUITLESS_DEATHS = 5
ENGINE_TIMEOUT = 300.0
SLOWER_LOADS = 4  # how many times longer than the first one a later load may take


class EngineBridge:
    """Feeds requests of all chunks to one engine and hands each answer to its sink.

    When the engine dies, a new one is started and given every request that has no answer yet:
    whoever waits for answers does not notice. But the rows that were in the batch run apart from
    the others then, until it is known whether one of them kills the engine, which becomes its
    answer (see `Suspects`). An engine that dies with no row in its batch, while it loads say, is
    broken itself: after more than `MAX_FRUITLESS_DEATHS` such deaths in a row, with no answer
    between, the bridge gives up and calls `on_failure`. An engine that has requests reports at
    least twice a second, or after each step that is longer; one that is silent for
    `engine_timeout` hangs, and is killed.

    Args:
        config: settings for `engine.config.EngineConfig`.
        on_failure: called once, from the bridge's thread, when no engine can be had any more.
        meter: takes what the engines report of themselves.
        engine_timeout: seconds.
        engine_env: variables of the engine's environment, besides those of this process.
        started: the first engine, with the same `config`, where it runs already.
        on_device_time: told by request id how long the device computed them, before the answers
            that came with it.
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
        on_device_time: Callable[[Mapping[str, float]], None] | None = None,
    ) -> None:
        self._config = config
        self._on_failure = on_failure
        self._on_device_time = on_device_time
        self._meter = EngineMeter() if meter is None else meter
        self._engine_timeout = self._load_timeout = engine_timeout
        self._engine_env = engine_env
        self._watchdog = Watchdog(engine_timeout)
        self._lock = threading.Lock()
        self._inflight = Inflight()
        self._running: Mapping[str, TokenCounts] = {}
        self._fruitless_deaths = 0
        self._closing = False
        self._engine: EngineProcess | None = None
        self._step: str | None = None
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

    def submit(
        self,
        requests: Sequence[Request],
        sink: Sink,
        *,
        apart: Callable[[], None] | None = None,
    ) -> None:
        """Queue requests; `sink` gets each answer, from the bridge's thread.

        Args:
            apart: run them with no others in the engine; called, from whichever thread, before
                an engine gets them. One such call at a time: the next one when all are answered.
        """
        with self._lock:
            self._inflight.add(requests, sink, apart)
            engine, due = self._engine, self._inflight.due()
        _send(engine, due)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Take requests back; none of them will reach its sink after this returned."""
        with self._lock:
            gone = self._inflight.abort(request_ids)
            engine, due = self._engine, self._inflight.due()
        if gone and engine is not None:
            engine.send(AbortRequests(gone))
        _send(engine, due)

    def running(self) -> Mapping[str, TokenCounts]:
        """Token counts of the requests that the engine was computing about half a second ago."""
        return self._running

    @property
    def loading(self) -> str | None:
        """What an engine that starts is at, in words; None if none starts."""
        return self._step

    @property
    def suspects(self) -> int:
        """Rows of which one may kill the engine; they run apart from the others."""
        return self._inflight.suspects

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
        message = self._next(engine)
        if isinstance(message, Located):
            try:
                if on_located is not None:
                    on_located(message.model_path)
            except BaseException:
                engine.kill()
                engine.close()
                raise
            message = self._next(engine)
        self._step = None
        with self._lock:
            self._loading = None
            ready = message if isinstance(message, Ready) and not self._closing else None
            self._engine = None if ready is None else engine
            if self._engine is not None:
                self._inflight.engine_started()
            due = self._inflight.due()
        if ready is not None:
            self._watchdog.watch(engine, lambda: bool(self._inflight), self._engine_timeout)
            _log_ready(engine, ready)
            _send(engine, due)
            return ready
        self._watchdog.forget()
        status = engine.close()
        if isinstance(message, Refused):
            raise ModelUnavailable(message.message)
        if isinstance(message, Crashed):
            engine.last_words = message.message
        detail = f": {engine.last_words}" if engine.last_words else ""
        raise EngineLost(f"the engine died while it loaded (exit status {status}){detail}")

    def _next(self, engine: EngineProcess) -> Message | None:
        """What it says next, of other things than the step that its start is at."""
        self._step = self._step or "starting the engine"
        while isinstance(message := engine.receive(), Loading):
            self._step = message.step
        return message

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
            self._note_death(engine, engine.close())
            self._relaunch()

    def _note_death(self, engine: EngineProcess, status: int) -> None:
        with self._lock:
            requests = len(self._inflight)
            death = self._inflight.engine_died(engine.death(status))
            for sink, output in death.answers:
                sink(output)
            suspects = self._inflight.suspects
        self._fruitless_deaths = 0 if death.admitted else self._fruitless_deaths + 1
        log.warning(
            "engine %d died (exit status %d) with %d requests inside, of %d rows in its batch; "
            "%d rows run apart until it is known whether one of them kills; starting another",
            engine.pid, status, requests, death.admitted, suspects,
            extra={"event": "engine_died", "engine_pid": engine.pid, "exit_status": status,
                   "requests": requests, "rows": death.admitted, "suspects": suspects},
        )  # fmt: skip
        if death.blamed is not None:
            self._meter.row_blamed()
            log.error(
                "row %s: %s", death.blamed, death.message,
                extra={"event": "row_blamed", "row": death.blamed},
            )  # fmt: skip

    def _relaunch(self) -> None:
        while not self._closing:
            if self._fruitless_deaths > MAX_FRUITLESS_DEATHS:
                raise EngineLost(
                    f"the engine died {self._fruitless_deaths} times in a row while it loaded or "
                    "without a row in its batch, so no row is to blame; see its log above"
                )
            try:
                self._launch(self._load_timeout)
            except EngineLost as error:
                self._fruitless_deaths += 1
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
                if self._on_device_time is not None and message.device_seconds:
                    self._on_device_time(message.device_seconds)
                for output in message.outputs:
                    self._deliver(output)
                with self._lock:
                    due = self._inflight.due()
                _send(engine, due)
            elif isinstance(message, BatchChanged):
                with self._lock:
                    self._inflight.batch_changed(message)
            elif isinstance(message, Crashed | Refused):
                engine.last_words = message.message
                log.error(
                    "engine %d: %s", engine.pid, message.message,
                    extra={"event": "engine_crashed", "engine_pid": engine.pid},
                )  # fmt: skip

    def _deliver(self, output: RequestOutput) -> None:
        with self._lock:
            sink = self._inflight.answer(output)
            # The sink runs under the lock so that `abort` can promise silence.
            if sink is not None:
                self._fruitless_deaths = 0
                sink(output)


def _send(engine: EngineProcess | None, requests: tuple[Request, ...]) -> None:
    if requests and engine is not None:
        engine.send(AddRequests(requests))


def _log_ready(engine: EngineProcess, ready: Ready) -> None:
    log.info(
        "engine %d ready: %s on %s, %d blocks of %d tokens, loaded in %.1f s",
        engine.pid, ready.dtype, ready.device, ready.num_blocks, ready.block_size,
        ready.load_seconds,
        extra={"event": "engine_ready", "engine_pid": engine.pid, "dtype": ready.dtype,
               "device": ready.device, "blocks": ready.num_blocks,
               "seconds": ready.load_seconds},
    )  # fmt: skip
