"""The command line as a process: streams, signals, and what it loads."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs import finalize
from tests.support.command_line import CommandLine
from tests.support.played_job import PlayedJob

PROGRAM = [sys.executable, "-P", "-m", "jobs"]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    return CommandLine(tmp_path / "home", monkeypatch)


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command that runs beside the test."""
    with subprocess.Popen(
        [*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_only_the_id_is_on_stdout(cli: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"prompt": "a"}\nbad\n')

    done = subprocess.run(
        [*PROGRAM, "submit", str(path), "--model", "m"], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"job_[2-7a-z]{20}\n", done.stdout)
    assert "\x1b" not in done.stderr


def test_a_reader_that_goes_away_is_no_error(cli: CommandLine) -> None:
    job_id = cli.submit(*({"prompt": "a" * 500} for _ in range(2000)))
    cli("cancel", job_id)

    for command in (["results", job_id], ["errors", job_id, "--json"]):
        with started(*command) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.read(10)
            process.stdout.close()
            assert process.stderr.read() == ""
            assert process.wait(120) == 141


def test_a_reader_that_takes_nothing_is_no_error(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"})
    reader, writer = os.pipe()
    os.close(reader)

    done = subprocess.run(
        [*PROGRAM, "status", job_id], stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(writer)

    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("command", [["wait"], ["status", "--watch"]])
def test_ctrl_c_ends_the_watching_and_not_the_job(cli: CommandLine, command: list[str]) -> None:
    job_id = cli.submit({"prompt": "a"})

    with started(command[0], job_id, *command[1:]) as process:
        assert process.stderr is not None
        assert "queued" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(120) == 130

    assert "goes on" in said
    assert "Traceback" not in said
    assert cli.json("status", job_id)["state"] == "queued"


def test_a_watch_as_json_has_a_line_for_each_change(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"}, {"prompt": "b"})

    with started("status", job_id, "--watch", "--json") as process, cli.store() as store:
        assert process.stdout is not None
        lines = [json.loads(process.stdout.readline())]
        job = PlayedJob(store, cli.storage, job_id)
        lease = job.claim()
        lines.append(json.loads(process.stdout.readline()))
        job.finish(lease)
        finalize.drive(store, cli.storage, "worker")
        lines.extend(json.loads(line) for line in process.stdout)
        assert process.wait(120) == 0

    states = [line["state"] for line in lines]
    assert states[:2] == ["queued", "in_progress"]
    assert states[-1] == "completed"
    assert lines[-1]["rows"]["completed"] == 2


def test_wait_returns_when_the_job_ends(cli: CommandLine) -> None:
    job_id = cli.submit({"prompt": "a"})

    with started("wait", job_id) as process, cli.store() as store:
        assert process.stderr is not None
        assert "queued" in process.stderr.readline()
        PlayedJob(store, cli.storage, job_id).finish_all()
        finalize.drive(store, cli.storage, "worker")
        assert process.wait(120) == 0


@pytest.mark.parametrize(
    "command",
    ["submit IN --model m", "status ID", "list", "results ID --partial", "errors ID", "cancel ID"],
)
def test_no_command_loads_the_model_s_libraries(cli: CommandLine, command: str) -> None:
    job_id = cli.submit({"prompt": "a"}, "bad")
    arguments = command.replace("IN", str(cli.home / "rows.jsonl")).replace("ID", job_id).split()
    program = (
        "import atexit, sys\n"
        "heavy = ('torch', 'transformers', 'engine', 'worker', 'kernels')\n"
        "atexit.register(lambda: print([n for n in heavy if n in sys.modules], file=sys.stderr))\n"
        "from jobs.__main__ import main\n"
        "main()\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"


def test_help_is_quick() -> None:
    """What it computes, and the best of a few: the machine may be busy."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*PROGRAM, "--help"], capture_output=True, check=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    assert min(times) < 1.0


def test_both_installed_names_are_the_same_program() -> None:
    for name in ("pagemill", "jobs"):
        program = Path(sys.executable).with_name(name)
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == "pagemill 0.1.0\n"


def test_a_broker_that_is_away_does_not_lose_the_job(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEMILL_BROKER_URL", "redis://user:secret@127.0.0.1:1/0")

    out, err = cli("submit", "-", "--model", "m", stdin='{"prompt": "a"}\n')

    assert "Workers could not be woken: the broker redis://user:***@127.0.0.1:1/0" in err
    assert "secret" not in err
    assert cli.json("status", out.strip())["state"] == "queued"
