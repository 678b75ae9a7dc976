"""The shell and Python blocks of a page, run one after the other as a reader would."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from jobs.database import Database, upgrade
from jobs.finalize import drive
from jobs.settings import Settings
from jobs.storage import Storage
from jobs.store import Store
from tests.support.child import child
from tests.support.markdown_pages import ROOT, Block, blocks
from tests.support.played_job import Window, add_job

MODEL = "smollm2-135m"
PORT = "9400"  # of the metrics
# A command that fails ends the shell, and not what it had in the background.
_LEAVE_NOTHING = "trap 'jobs -p | xargs --no-run-if-empty kill -9' EXIT"


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


# By page and the start of the block: why no test runs it, and what is tested in its place.
NOT_RUN = {
    ("benchmarks/README.md", "python -m benchmarks.workloads"): "it takes an hour, and installs "
    "the peers",
    ("docs/howto/several-gpus.md", "sudo systemctl"): "it needs root and systemd; the unit is "
    "read by tests/docs/test_howtos.py::test_the_unit_starts_a_worker_and_stops_as_workers_end",
    ("docs/install.md", "python -m pip wheel"): "it fetches all packages anew; .ci/wheel-check "
    "does the same",
    ("docs/install.md", "eval "): "each line is for another shell; "
    "tests/packaging/test_shell_init.py::test_the_line_is_the_documented_one",
    ("docs/install.md", "cp docker/.env.example"): "it needs Docker; "
    "tests/docker/test_containers.py::test_a_deployment_answers_a_job_and_ends_in_time",
    ("docs/install.md", "compose() {"): "it needs Docker; "
    "tests/docker/test_containers.py::test_a_deployment_answers_a_job_and_ends_in_time",
    ("docs/operations.md", "pagemill worker"): "it goes on until it is told to leave; "
    "tests/worker/test_operations_docs.py::test_the_commands_on_the_page_are_understood",
    ("docs/operations.md", "curl "): "it asks that worker; "
    "tests/worker/test_metrics.py::test_health",
}


def not_run(block: Block) -> tuple[str, str] | None:
    """Its key in `NOT_RUN`."""
    keys = (key for key in NOT_RUN if key[0] == block.page and block.code.startswith(key[1]))
    return next(keys, None)


def runnable(page: str) -> list[Block]:
    """The blocks that `Place.run` runs."""
    found = [block for block in blocks(page) if block.language in ("bash", "python")]
    return [block for block in found if not_run(block) is None]


@dataclass(frozen=True)
class Place:
    """A folder like a fresh clone, and a deployment of its own.

    Attributes:
        model: what stands for the model of the pages; a tiny one is as good, and quicker. None
            where a page needs none.
        names: what the shell knows when the page begins.
    """

    folder: Path
    model: Path | None
    names: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PAGEMILL_")}
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ours = {"PATH": programs, "PAGEMILL_HOME": str(self.folder / "home"), "NO_COLOR": "1"}
        # Compiled modules are kept: to compile them all takes seconds of every start.
        quick = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
        return {**kept, **ours, **quick, **self.names}

    @property
    def settings(self) -> Settings:
        return Settings.from_env(self.env)

    def run(self, page: str) -> str:
        """What its blocks print. Fails if one of their commands does."""
        for example in (path for path in (ROOT / "examples").rglob("*") if path.is_file()):
            text = example.read_text("utf-8").replace(MODEL, str(self.model or MODEL))
            copy = self.folder / example.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text, "utf-8")
        script = "\n".join(_shell(block) for block in runnable(page))
        for said, meant in ((MODEL, str(self.model or MODEL)), (PORT, str(_free_port()))):
            script = script.replace(said, meant)
        with child(
            ["bash", "-eu", "-o", "pipefail", "-c", f"{_LEAVE_NOTHING}\n{script}"],
            cwd=self.folder, env=self.env, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as shell:  # fmt: skip
            try:
                out, said = shell.communicate(timeout=240)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGKILL)  # a killed shell leaves what it started
        assert shell.returncode == 0, f"{page}\n{out}\n{said}"
        printed = iter(out.splitlines())
        for said in promised(page):
            assert said in printed, f"{page} does not print {said!r}, or not in this order"
        return str(out)


def promised(page: str) -> list[str]:
    """What its Python blocks print, as the comment behind a `print` has it."""
    code = "".join(block.code for block in runnable(page) if block.language == "python")
    return re.findall(r"^print\(.*\)  # (.+)$", code, re.MULTILINE)


def _shell(block: Block) -> str:
    if block.language == "python":
        return f"python -P - <<'END OF PYTHON'\n{block.code}END OF PYTHON\n"
    return block.code


def with_a_played_job(place: Place) -> None:
    """A job that has ended, two of its rows with errors; the page calls it `$job`."""
    settings = place.settings
    (place.folder / "home").mkdir()
    upgrade(settings.database_url)
    database = Database(settings.database_url)
    try:
        store, storage = Store(database), Storage(settings.storage_url)
        job = add_job(store, storage, [Window([[0, 1], [3, 2]], rejected=[4])])
        job.failing = {1}
        job.finish_all()
        drive(store, storage, "test")
    finally:
        database.close()
    place.names["job"] = job.id


def empty(place: Place) -> None:
    """Nothing was ever submitted."""


Prepared = Callable[[Place], None]
