"""The engine as a process of its own, at the far end of a pipe.

Its host loop shares no interpreter lock with the queue, the templates and the files of the
worker, and when it dies it takes no worker with it. It ends when the pipe closes: a worker
that was killed leaves no engine behind that holds the device.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
import time
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from engine.batch_watch import BatchWatch
from engine.config import EngineConfig
from engine.device_time import DeviceTime
from engine.errors import EngineError, RequestError
from engine.loading import resolve_model
from engine.loading.cache import prepare_triton
from engine.logs import configure_logging
from engine.messages import (
    AbortRequests,
    AddRequests,
    Crashed,
    Loading,
    Located,
    Message,
    Ready,
    Refused,
    Report,
    Start,
    decode,
    encode,
)
from engine.request import Request, RequestOutput
from engine.startup import listening, tell

if TYPE_CHECKING:
    from engine.core import Engine
    from engine.sequence import Sequence

log = logging.getLogger("pagemill.engine")
# Set by the worker: text or json; debug, info, warning or error.
LOG_FORMAT_VARIABLE, LOG_LEVEL_VARIABLE = "PAGEMILL_LOG_FORMAT", "PAGEMILL_LOG_LEVEL"
REPORT_SECONDS = 0.5
EXIT_CRASHED, EXIT_REFUSED = 1, 3
_STARTED = time.monotonic()


def main(read_fd: int, write_fd: int) -> int:
    """Serve one worker until it closes the pipe. Returns the exit status."""
    # A terminal's Ctrl-C, its end, and a service manager's SIGTERM reach the whole process group;
    # the worker decides what becomes of the rows, and then closes the pipe.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    prepare_triton()
    inbox = _Inbox(Connection(read_fd, writable=False))
    writer = Connection(write_fd, readable=False)
    try:
        configure_logging(
            os.environ.get(LOG_FORMAT_VARIABLE, "text"),
            process="engine",
            level=os.environ.get(LOG_LEVEL_VARIABLE, "info"),
        )
        engine = _open(inbox, writer)
    except EngineError as error:
        inbox.exit_status = EXIT_REFUSED
        writer.send_bytes(encode(Refused(str(error))))
        return EXIT_REFUSED
    except Exception as error:
        return _crash(inbox, writer, error)
    try:
        return _loop(engine, inbox, writer)
    except Exception as error:  # an engine that was ready refuses nothing: any error is a bug
        return _crash(inbox, writer, error)


def _crash(inbox: _Inbox, writer: Connection, error: Exception) -> int:
    inbox.exit_status = EXIT_CRASHED
    log.error("the engine ends because of an unexpected error", exc_info=error)
    writer.send_bytes(encode(Crashed(f"{type(error).__name__}: {error}")))
    return EXIT_CRASHED


class _Inbox:
    """The messages of the worker, read in a thread of their own.

    When the worker is gone, nobody waits for what the main thread is computing: the process ends.

    Attributes:
        exit_status: what it ends with then. The pipe also closes when the worker sees this
            process end, before it has ended.
    """

    def __init__(self, reader: Connection) -> None:
        self.exit_status = 0
        self._reader = reader
        self._messages: queue.SimpleQueue[Message | Exception] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="pipe", daemon=True).start()

    def get(self) -> Message:
        """The next message; waits for it.

        Raises:
            ValueError: it is none that can be read.
        """
        message = self._messages.get()
        if isinstance(message, Exception):
            raise message
        return message

    def empty(self) -> bool:
        return self._messages.empty()

    def _read(self) -> None:
        while True:
            message: Message | Exception
            try:
                message = decode(self._reader.recv_bytes())
            except (EOFError, OSError):
                os._exit(self.exit_status)
            except Exception as error:  # whoever takes the message meets it
                message = error
            self._messages.put(message)


def _open(inbox: _Inbox, writer: Connection) -> Engine:
    """The engine that the first message asks for, once it is ready.

    Raises:
        EngineError: the model or its settings cannot work.
    """
    start = inbox.get()
    if not isinstance(start, Start):
        raise EngineError(f"the first message must be Start, not {type(start).__name__}")
    config = EngineConfig.from_mapping(start.config)

    with listening(lambda step: writer.send_bytes(encode(Loading(step)))):
        engine = _load(config, writer)
    writer.send_bytes(
        encode(
            Ready(
                model_path=str(engine.files.path),
                revision=engine.files.revision,
                dtype=str(engine.loaded.dtype).removeprefix("torch."),
                kv_dtype=engine.kv_cache.format.name,
                device=str(engine.loaded.device),
                max_model_len=engine.max_model_len,
                block_size=config.block_size,
                num_blocks=engine.kv_cache.num_blocks,
                load_seconds=engine.load_seconds,
                deterministic=config.deterministic,
            )
        )
    )
    return engine


def _load(config: EngineConfig, writer: Connection) -> Engine:
    """Find and load the model."""
    # The worker loads the tokenizer while torch and the weights are loaded here.
    files = resolve_model(config.model)
    writer.send_bytes(encode(Located(str(files.path))))
    tell("loading torch")

    from engine.core import Engine  # torch is loaded here, after the pipe is watched

    return Engine(config, files)


def _loop(engine: Engine, inbox: _Inbox, writer: Connection) -> int:
    watch = BatchWatch()

    def tell_batch(running: tuple[Sequence, ...]) -> None:
        changed = watch.look(running)
        if changed is not None:
            writer.send_bytes(encode(changed))

    engine.device_time = device_time = DeviceTime()
    writer.send_bytes(encode(Report(stats=engine.stats)))
    told_of_first = False
    reported, stale = 0.0, False  # when stats were sent last, and whether there was work since
    while True:
        outputs = _take(engine, inbox)
        if engine.has_unfinished:
            stale = True
            outputs += engine.step(tell_batch)
            told_of_first = told_of_first or _tell_of_first_token(engine)
        now = time.monotonic()
        if stale and (not engine.has_unfinished or now - reported >= REPORT_SECONDS):
            spent = device_time.take_all()
            report = Report(tuple(outputs), engine.running(), engine.stats, spent)
            writer.send_bytes(encode(report))
            reported, stale = now, engine.has_unfinished
        elif outputs:
            spent = device_time.take(output.request_id for output in outputs)
            writer.send_bytes(encode(Report(tuple(outputs), device_seconds=spent)))


def _tell_of_first_token(engine: Engine) -> bool:
    """Log how long it took from the start of this process; false while there is none."""
    if not engine.stats.generated_tokens:
        return False
    seconds = time.monotonic() - _STARTED
    log.info(
        "first token %.1f s after the start", seconds,
        extra={"event": "first_token", "seconds": round(seconds, 3)},
    )  # fmt: skip
    return True


def _take(engine: Engine, inbox: _Inbox) -> list[RequestOutput]:
    """Handle the messages that are there; wait for one only when there is nothing to compute."""
    refused: list[RequestOutput] = []
    waits = not engine.has_unfinished
    while waits or not inbox.empty():
        message = inbox.get()
        waits = False
        match message:
            case AddRequests():
                refused += message.unreadable
                refused += filter(None, (_add(engine, r) for r in message.requests))
            case AbortRequests():
                for request_id in message.request_ids:
                    engine.abort(request_id)
            case _:
                raise ValueError(f"unexpected message {type(message).__name__}")
    return refused


def _add(engine: Engine, request: Request) -> RequestOutput | None:
    """Queue a request; what it ends with, if that cannot be."""
    try:
        engine.add(request)
    except RequestError as error:
        return RequestOutput.refused(request.request_id, error)
    except Exception as error:
        # An end of this process here would be blamed on no row, so the next one would meet it too.
        log.exception("request %s cannot be taken", request.request_id)
        engine.abort(request.request_id)  # as far as it was queued
        said = f"the engine cannot take the request ({type(error).__name__}: {error})"
        return RequestOutput.without_answer(
            request.request_id,
            "engine_error",
            f"{said}; its log has more, look at the row's fields",
        )
    return None
