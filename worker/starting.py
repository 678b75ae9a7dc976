"""The first moments of a worker process: the engine starts before anything heavy is imported.

The engine needs seconds for torch and the weights. Celery, Arrow and the tokenizer are imported
here meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from engine.logs import configure_logging
from jobs.errors import JobsError
from jobs.scrubbing import scrub_logs
from worker.engine_process import EngineProcess
from worker.errors import WorkerError
from worker.options import WorkerOptions

log = logging.getLogger("pagemill.worker")


def main(arguments: Sequence[str]) -> int:
    """Run a worker until it is told to leave; returns the exit status."""
    configure_logging("text")  # until we know better
    try:
        options = WorkerOptions.parse(arguments)
        _configure_logging(options)
        engine = EngineProcess(options.engine, options.engine_env())
        try:
            from worker.main import run

            return run(options, engine)
        finally:
            engine.close()  # most often it is closed already; a crash may have come before that
    except (WorkerError, JobsError) as error:
        log.error("%s", error)
        return error.exit_code
    except Exception as error:
        log.critical("%s: %s", type(error).__name__, error, exc_info=True)
        return WorkerError.exit_code


def _configure_logging(options: WorkerOptions) -> None:
    configure_logging(options.log_format, process="worker", level=options.log_level)
    scrub_logs()
    for noisy in ("alembic", "celery", "httpx", "kombu"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
