"""Logging of our processes, set up in one place: lines for people, or a JSON object a line.

The worker and the engine write to standard error, and what they would write past the loggers
(warnings, uncaught exceptions) comes in the same form.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from engine.errors import ConfigError

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
# What a record has by itself; everything else came through `extra=`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

log = logging.getLogger("pagemill")


def configure_logging(form: str, *, process: str | None = None, level: str = "info") -> None:
    """Set up the root logger, warnings and uncaught exceptions of this process.

    Args:
        form: `text`, or `json` (see `JsonFormatter`).
        process: JSON records say that they are from this process, and its id.
        level: records below it are dropped; one of `LEVELS`.

    Raises:
        ConfigError: there is no such form, or no such level.
    """
    if form not in FORMATS:
        raise ConfigError(
            f"the log format (PAGEMILL_LOG_FORMAT) is {form!r}; it must be {' or '.join(FORMATS)}"
        )
    if level not in LEVELS:
        raise ConfigError(
            f"the log level (PAGEMILL_LOG_LEVEL) is {level!r}; it must be one of "
            f"{', '.join(LEVELS)}"
        )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(process) if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread
    sys.unraisablehook = _log_unraisable


class JsonFormatter(logging.Formatter):
    """One JSON object a line, whatever the record holds; never raises.

    Fields: `ts` (RFC 3339, UTC, milliseconds), `level`, `logger`, `message`, then `process` and
    `pid` where the process has a name, every `extra=` field of the record, and `exception` and
    `stack` where there is a traceback. An extra that has the name of a field before it becomes
    `extra.NAME`; one that JSON cannot hold becomes a string.
    """

    def __init__(self, process: str | None = None) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        if self._process is not None:
            fields |= {"process": self._process, "pid": record.process}
        for name, value in vars(record).items():
            if name not in _OWN:
                fields[f"extra.{name}" if name in fields else name] = _plain(value)
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = self._traceback(record)
        if record.stack_info:
            fields["stack"] = record.stack_info
        return json.dumps(fields)

    def _traceback(self, record: logging.LogRecord) -> str:
        assert record.exc_info
        try:
            return record.exc_text or self.formatException(record.exc_info)
        except Exception:  # an exception whose parts cannot be shown
            return f"{record.exc_info[0].__name__}, whose traceback cannot be shown"  # type: ignore[union-attr]


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # arguments that do not fit the format, or cannot be shown
        return f"{_plain(record.msg)} {_plain(record.args)}"


def _plain(value: object) -> object:
    """The value if JSON can hold it, else a string for it."""
    try:
        json.dumps(value, allow_nan=False)
    except Exception:
        try:
            return str(value)
        except Exception:
            return f"<{type(value).__name__} that cannot be shown>"
    return value


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        log.critical("uncaught exception", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if issubclass(args.exc_type, SystemExit) or args.exc_value is None:
        return
    name = args.thread.name if args.thread is not None else "unknown"
    log.critical(
        "uncaught exception in thread %s",
        name,
        exc_info=(args.exc_type, args.exc_value, args.exc_traceback),
        extra={"thread_name": name},
    )


def _log_unraisable(args: sys.UnraisableHookArgs) -> None:
    error = args.exc_value
    log.error(
        "%s: %r",
        args.err_msg or "exception ignored in",
        args.object,
        exc_info=None if error is None else (args.exc_type, error, args.exc_traceback),
    )
