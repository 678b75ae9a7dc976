"""What becomes of a command whose stdout takes no more: a full disk, a reader that went away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs import finalize
from jobs.database import Database, upgrade
from jobs.settings import Settings
from jobs.storage import Storage
from jobs.store import Store
from tests.support.played_job import Window, add_job

FORMATS = ("jsonl", "openai", "parquet")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def job_id(home: Path) -> str:
    """A job whose answers fill more than one buffer."""
    settings = Settings.from_env({"PAGEMILL_HOME": str(home)})
    upgrade(settings.database_url)
    database = Database(settings.database_url)
    try:
        store, storage = Store(database), Storage(settings.storage_url)
        job = add_job(store, storage, [Window([list(range(2000))])])
        job.failing = {3}
        job.finish_all()
        finalize.drive(store, storage, "me")
        return job.id
    finally:
        database.close()


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "PAGEMILL_HOME": str(home), "PYTHONUNBUFFERED": ""}


def run(environment: dict[str, str], stdout: int, *arguments: str) -> tuple[int, str]:
    """Exit code and stderr of `pagemill …`; stdout is closed here."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "jobs", *arguments],
            env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    finally:
        os.close(stdout)
    return done.returncode, done.stderr


def full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def abandoned_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


COMMANDS = [*(("results", "ID", "--format", form) for form in FORMATS), ("list",), ("--help",)]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_full_disk_is_one_sentence(
    environment: dict[str, str], job_id: str, command: tuple[str, ...]
) -> None:
    arguments = [job_id if word == "ID" else word for word in command]
    code, said = run(environment, full(), *arguments)
    assert said == "Error: cannot write to stdout: No space left on device\n"
    assert code == 74


def test_a_full_disk_is_one_sentence_without_a_buffer_too(environment: dict[str, str]) -> None:
    """Then it is the command itself that fails, and nothing is left to be written at the end."""
    code, said = run(environment | {"PYTHONUNBUFFERED": "1"}, full(), "list")
    assert (code, said) == (74, "Error: cannot write to stdout: No space left on device\n")


def test_an_error_is_not_followed_by_one_of_stdout(environment: dict[str, str]) -> None:
    code, said = run(environment, full(), "results", "job_nonsense")
    assert (code, said.count("\n")) == (66, 1)
    assert "no job" in said


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_on_a_full_disk_is_one_sentence(
    environment: dict[str, str], job_id: str, form: str
) -> None:
    arguments = ("results", job_id, "--format", form, "-o", "/dev/full")
    code, said = run(environment, os.open(os.devnull, os.O_WRONLY), *arguments)
    assert (code, said) == (74, "Error: cannot write /dev/full: No space left on device\n")


@pytest.mark.parametrize("command", COMMANDS[:-1], ids=" ".join)
def test_a_reader_that_went_away_is_no_error(
    environment: dict[str, str], job_id: str, command: tuple[str, ...]
) -> None:
    arguments = [job_id if word == "ID" else word for word in command]
    assert run(environment, abandoned_pipe(), *arguments) == (141, "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_the_caller_closed_is_as_nothing(
    environment: dict[str, str], job_id: str, closed: str
) -> None:
    """A hint is no result even where stderr is closed, and nothing ends in a traceback."""
    command = f'exec "{sys.executable}" -m jobs errors {job_id} --code none {closed}'
    ended = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "Traceback" not in ended.stderr
    assert ("no rows with errors" in ended.stderr) == ("2>" not in closed)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_name_is_told_whatever_letters_the_terminal_has(
    environment: dict[str, str], tmp_path: Path, encoding: str
) -> None:
    """`LC_ALL=en_US.ISO-8859-1` and the like; a plain `C` is UTF-8 for Python."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "a"}\n')
    environment |= {"PYTHONIOENCODING": encoding, "PAGEMILL_HOME": str(tmp_path / "home")}
    program = [sys.executable, "-P", "-m", "jobs"]
    options = ["--model", "smollm2-135m", "--name", "nächtlich → 漢"]
    subprocess.run(
        [*program, "submit", str(rows), *options], env=environment, check=True, capture_output=True
    )

    done = subprocess.run([*program, "list"], env=environment, capture_output=True)

    assert (done.returncode, done.stderr) == (0, b"")
    shown = {"ascii": r"n\xe4chtlich \u2192 \u6f22", "latin-1": r"nächtlich \u2192 \u6f22"}
    assert shown.get(encoding, "nächtlich → 漢") in done.stdout.decode(encoding)
