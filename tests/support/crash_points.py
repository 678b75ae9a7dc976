"""Named points at which a process dies by its own `kill -9`, chosen by a test.

The product knows nothing of them: `arm` replaces a method in the process that is to die.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.job_folder import JobFolder
from jobs.store import Store

if TYPE_CHECKING:
    from tests.support.deployment import Deployment

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Point:
    """A moment in the life of a job.

    Attributes:
        method: of `JobFolder` or `Store`, or a function with its module; `create` is a file that
            is written.
        when: `torn` (half of the first bytes are on the disk), `before` (for a file: all bytes
            are, its name is not) or `after` the effect, whose answer is lost.
        path: the first file whose path matches; None for methods without a path.
    """

    method: str
    when: str
    path: str | None = None


def _writing(name: str, path: str) -> dict[str, Point]:
    return {
        f"{name} is half written": Point("create", "torn", path),
        f"{name} has no name yet": Point("create", "before", path),
        f"{name} is written": Point("create", "after", path),
    }


OF_A_JOB = {
    **_writing("a segment", r"_spool/"),
    **_writing("a part", r"_parts/"),
    "a chunk is committed": Point("commit_chunk", "after"),
    **_writing("a window", r"_windows/.*\.parquet$"),
    **_writing("a summary", r"_windows/.*\.json$"),
    "a window is merged": Point("finish_window", "after"),
    "the finalization is claimed": Point("claim_finalization", "after"),
    "no file is published": Point("link", "before", r"v1/"),
    "a file is published": Point("link", "after", r"v1/"),
    "there is no manifest yet": Point("create_once", "before", "manifest"),
    "the manifest has no name yet": Point("os.link", "before", "manifest"),
    "the manifest is written": Point("create_once", "after", "manifest"),
    "_SUCCESS is written": Point("create_once", "after", "_SUCCESS"),
    "the state is not changed yet": Point("finish_job", "before"),
    "the job has ended": Point("finish_job", "after"),
    "some garbage is removed": Point("remove", "after"),
    "the garbage is removed": Point("forget_garbage", "before"),
}

OF_A_RETRY = {
    **_writing("the copy", r"_input/v2"),
    "the job is open again": Point("reopen", "after"),
    "a part of the retry is written": Point("create", "after", r"_parts/.*-v2-"),
    "a window of the retry has no name yet": Point("create", "before", r"_windows/v2-.*parquet$"),
    "a window is taken over": Point("link", "after", r"_windows/v2-"),
    "a file of the retry is published": Point("link", "after", r"v2/"),
    "the manifest of the retry is written": Point("create_once", "after", r"v2/_manifest"),
    "the retry has ended": Point("finish_job", "after"),
}

# After one that failed as a whole.
OF_A_SECOND_RETRY = {
    **_writing("the second copy", r"_input/v3"),
    "the job that failed is open again": Point("reopen", "after"),
    "its former parts are half removed": Point("remove", "after"),
    "a part of the second retry is written": Point("create", "after", r"_parts/.*-v3-"),
    "a file of the second retry is published": Point("link", "after", r"v3/"),
    "the second retry has ended": Point("finish_job", "after"),
}

OF_A_SUBMIT = {
    **_writing("the input", r"_input/v1\.parquet"),
    "the folder is not marked yet": Point("mark", "before"),
    "the job is not in SQL": Point("insert_job", "before"),
    "the job is in SQL": Point("insert_job", "after"),
}

_INSERT = "jobs.store.ticks.insert_evaluation"
_INSERT_RESULTS = "jobs.store.evaluation_rescoring.insert_results"
OF_A_TICK = {
    "what is due was only looked at": Point("tick_schedule", "before"),
    "the schedule is moved on, nothing is inserted": Point(_INSERT, "before"),
    "the evaluation is inserted, not committed": Point(_INSERT, "after"),
    "the tick is committed": Point("tick_schedule", "after"),
}

OF_AN_EVALUATION = {
    "the rows are noted": Point("note_dataset", "after"),
    "the answering job is half written": Point("create", "torn", r"_input/v1\.parquet"),
    "the answering job is not in SQL": Point("insert_job", "before"),
    "the answering job is in SQL": Point("insert_job", "after"),
    "the evaluation does not name its job": Point("move_evaluation", "before"),
    "the evaluation names its job": Point("move_evaluation", "after"),
}

OF_ITS_SCORES = {
    "all answers are there": Point("move_evaluation", "after"),
    **_writing("a file of scores", r"scores-e"),
    "the scores are not in SQL": Point("finish_evaluation", "before"),
    "the scores are in SQL": Point("finish_evaluation", "after"),
}

OF_NEW_SCORES = {
    "the old scores are leased": Point("claim_ended_evaluation", "after"),
    **_writing("a file of new scores", r"scores-e"),
    "the new scores are not in SQL": Point("replace_evaluation_results", "before"),
    "the old scores are gone from SQL": Point(_INSERT_RESULTS, "before"),
    "the new scores are not committed": Point(_INSERT_RESULTS, "after"),
    "the new scores are in SQL": Point("replace_evaluation_results", "after"),
}

OF_A_NOTIFICATION = {
    "an attempt is claimed": Point("claim_notification", "after"),
    "the URL has taken it": Point("notification_delivered", "before"),
    "that is noted": Point("notification_delivered", "after"),
}

OF_JOBS = {**OF_A_JOB, **OF_A_RETRY, **OF_A_SECOND_RETRY, **OF_A_SUBMIT}
OF_EVALUATIONS = {**OF_AN_EVALUATION, **OF_ITS_SCORES, **OF_NEW_SCORES}
POINTS = {**OF_JOBS, **OF_A_NOTIFICATION, **OF_A_TICK, **OF_EVALUATIONS}


def arm(point: Point) -> None:
    """Let this process die there."""
    module, _, function = point.method.rpartition(".")
    if module:
        found = importlib.import_module(module)
        setattr(found, function, _dying_call(getattr(found, function), point))
        return
    owner: type = JobFolder if hasattr(JobFolder, point.method) else Store
    wrap = _dying_writer if point.method == "create" else _dying_call
    setattr(owner, point.method, wrap(getattr(owner, point.method), point))


def arm_commands(point: str, program: str, folder: Path) -> dict[str, str]:
    """The environment in which every process of a program (`jobs`, `worker`) dies there."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        f"if sys.orig_argv[1:4] == ['-P', '-m', {program!r}]:\n"
        f"    sys.path.append({os.fspath(ROOT)!r})\n"
        "    from tests.support.crash_points import POINTS, arm\n"
        f"    arm(POINTS[{point!r}])\n"
    )
    return {"PYTHONPATH": os.fspath(folder)}


@contextlib.contextmanager
def workers_die_at(point: str, deployment: Deployment) -> Iterator[None]:
    """Workers that are started in the block die there."""
    calm = deployment.env
    deployment.env = calm | arm_commands(point, "worker", deployment.home / "armed")
    try:
        yield
    finally:
        deployment.env = calm


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _dying_call(real: Callable[..., Any], point: Point) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        paths = [str(a) for a in arguments if isinstance(a, (str, Path))]
        meant = point.path is None or any(re.search(point.path, path) for path in paths)
        if meant and point.when == "before":
            _die()
        result = real(*arguments, **named)
        in_vain = point.method.startswith("claim") and result is None
        if meant and not in_vain:
            _die()
        return result

    return call


def _dying_writer(real: Callable[..., Any], point: Point) -> Callable[..., Any]:
    @contextlib.contextmanager
    def create(self: JobFolder, relative: str) -> Iterator[Any]:
        assert point.path is not None
        meant = re.search(point.path, relative) is not None
        with real(self, relative) as file:
            yield _Torn(file) if meant and point.when == "torn" else file
            if meant and point.when == "before":
                file.flush()
                _die()
        if meant:
            _die()

    return create


class _Torn:
    """A file whose first bytes are written by half."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, content: Any) -> int:
        content = bytes(content)
        self._file.write(content[: len(content) // 2])
        self._file.flush()
        _die()
        raise AssertionError

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
