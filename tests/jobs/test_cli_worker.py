"""`pagemill worker` up to where it becomes the worker process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine

pytestmark = pytest.mark.quick


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    for name in ("LOG_FORMAT", "LOG_LEVEL", "METRICS_PORT", "METRICS_HOST"):
        monkeypatch.delenv(f"PAGEMILL_{name}", raising=False)
    return CommandLine(tmp_path / "home", monkeypatch)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that `execv` was given."""
    commands: list[list[str]] = []

    def execv(program: str, command: list[str]) -> None:
        commands.append(command)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", execv)
    return commands


def test_options_are_handed_on(cli: CommandLine, started: list[list[str]]) -> None:
    cli(
        "worker", "--model", "m", "--concurrency", "2", "--log-format", "json", "--log-level",
        "warning", "--metrics-port", "0", "--metrics-host", "0.0.0.0", "--num-blocks", "9",
    )  # fmt: skip

    (command,) = started
    assert command[-15:] == [
        "worker", "--model", "m",
        "--concurrency", "2", "--log-format", "json", "--log-level", "warning",
        "--metrics-port", "0", "--metrics-host", "0.0.0.0", "--num-blocks", "9",
    ]  # fmt: skip


def test_what_is_not_given_is_left_to_the_worker(
    cli: CommandLine, started: list[list[str]]
) -> None:
    cli("worker", "--model", "m")

    assert started[0][-2:] == ["--model", "m"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("concurrency", "0"),
        ("concurrency", "many"),
        ("metrics-port", "65536"),
        ("metrics-port", "-1"),
        ("log-format", "xml"),
        ("log-level", "loud"),
    ],
)
def test_a_value_that_cannot_work_is_wrong_usage(
    cli: CommandLine, started: list[list[str]], name: str, value: str
) -> None:
    _, said = cli("worker", "--model", "m", f"--{name}", value, expect=64)

    assert f"Invalid value for '--{name}'" in said
    assert "usage:" not in said
    assert started == []


def test_so_is_a_variable_of_the_environment(
    cli: CommandLine, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEMILL_METRICS_PORT", "http")

    _, said = cli("worker", "--model", "m", expect=64)

    assert "PAGEMILL_METRICS_PORT" in said
    assert started == []
