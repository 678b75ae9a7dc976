"""`pagemill doctor` as people and programs read it."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.cli.console import console
from jobs.cli.doctor import _show
from jobs.doctor import computing_check
from jobs.doctor.findings import warning
from tests.support.command_line import CommandLine


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path) -> CommandLine:
    made = CommandLine(tmp_path / "home", monkeypatch).with_tables(migrated_sqlite)
    line = json.dumps({"name": "torch", "level": "ok", "found": "torch 2", "advice": None})
    script = f"import sys; print({line!r}); sys.exit('llama' in sys.argv)"
    monkeypatch.setattr(
        computing_check, "command",
        lambda model: [sys.executable, "-c", script, *([model] if model else [])],
    )  # fmt: skip
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    room = shutil.disk_usage("/")._replace(free=100 << 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room)
    monkeypatch.setattr("jobs.doctor.gpu_check._DRIVER", tmp_path / "none")
    return made


def test_a_line_for_each_thing_and_what_to_do(cli: CommandLine) -> None:
    out, err = cli("doctor")

    lines = out.splitlines()
    begin = [line.split()[:2] for line in lines[:-1] if not line.startswith(" ")]
    assert begin == [
        ["ok", "settings"], ["ok", "database"], ["ok", "clock"], ["warning", "workers"],
        ["ok", "broker"], ["warning", "storage"], ["ok", "gpu"], ["ok", "torch"],
    ]  # fmt: skip
    assert " -> start one with `pagemill worker --model MODEL`" in out
    assert lines[-1] == "0 faults, 2 warnings"
    assert "\x1b" not in out
    assert err == ""


def test_as_json_each_finding_is_an_object(cli: CommandLine) -> None:
    found = cli.json("doctor")

    assert found[-1] == {"name": "torch", "level": "ok", "found": "torch 2", "advice": None}
    assert all(set(finding) == {"name", "level", "found", "advice"} for finding in found)
    assert all((finding["advice"] is None) == (finding["level"] == "ok") for finding in found)


def test_a_fault_ends_with_1_and_secrets_stay_out(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEMILL_BROKER_URL", "redis://:hush-hush@127.0.0.1:1/0")

    out, _ = cli("doctor", expect=1)

    assert "fault    broker" in out
    assert "hush-hush" not in out
    assert out.splitlines()[-1] == "1 fault, 2 warnings"


def test_settings_that_cannot_work_are_a_fault_and_the_rest_is_looked_at(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEMILL_SWEEP_SECONDS", "0")

    found = {
        finding["name"]: finding for finding in json.loads(cli("doctor", "--json", expect=1)[0])
    }

    assert found["settings"]["level"] == "fault"
    assert "sweep_seconds is 0" in found["settings"]["found"]
    assert found.keys() == {"settings", "gpu", "torch"}


def test_the_model_reaches_the_other_process(cli: CommandLine) -> None:
    found = {
        f["name"]: f for f in json.loads(cli("doctor", "--model", "llama", "--json", expect=1)[0])
    }
    assert found["computing"]["found"].startswith("the look at torch ended with 1")


def test_on_this_machine_with_a_hanging_database_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole program, with nothing played: a server that never answers keeps nobody."""
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/x?connect_timeout=100"
        env = {
            **os.environ,
            "PAGEMILL_HOME": str(tmp_path),
            "PAGEMILL_DATABASE_URL": url,
            "PYTHONPATH": str(_shortened(tmp_path)),
        }
        done = subprocess.run(
            [sys.executable, "-m", "jobs", "doctor", "--model", str(tmp_path / "none"), "--json"],
            env=env, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[2],
        )  # fmt: skip

    assert done.returncode == 1, done.stderr
    found = {finding["name"]: finding for finding in json.loads(done.stdout)}
    assert found["database"]["found"] == "no answer within 1 s"
    assert found["model"]["level"] == "fault"
    assert "no such file or folder" in found["model"]["found"]
    assert found["torch"]["level"] == found["kernels"]["level"] == "ok"


def _shortened(folder: Path) -> Path:
    """A start-up file that shortens the limit for what lies outside."""
    place = folder / "site"
    place.mkdir()
    (place / "sitecustomize.py").write_text(
        "import jobs.cli.doctor\njobs.cli.doctor._OUTSIDE_SECONDS = 1\n"
    )
    return place


@pytest.mark.quick
def test_lines_are_never_cut_or_wrapped() -> None:
    """Paths and commands can be copied."""
    shown = console(io.StringIO())
    shown.width = 40
    finding = warning("storage", f"there is no folder /{'a' * 50}\n \x1b[31m", f"mount /{'b' * 50}")

    _show(shown, finding)

    assert shown.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        f"warning  storage      there is no folder /{'a' * 50} \ufffd[31m",
        f"                      -> mount /{'b' * 50}",
    ]
