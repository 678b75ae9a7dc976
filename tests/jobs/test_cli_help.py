"""The help of every command, and what shells complete."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from jobs.cli import completion
from jobs.cli.app import app
from tests.support.command_line import CommandLine, run_here

quick = pytest.mark.quick
ROOT: Any = get_command(app)


def commands(group: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Each command, group of commands, and the program itself, by its words."""
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


def examples(help_text: str) -> list[str]:
    """The lines under `Example:`."""
    found = re.search(r"^  Examples?:\n((?:    \S.*\n)+)", help_text, re.MULTILINE)
    return [] if found is None else [line.strip() for line in found[1].splitlines()]


def our_parts(line: str) -> Iterator[list[str]]:
    """The arguments of each `pagemill` in a line of a shell."""
    words = shlex.shlex(line, posix=True, punctuation_chars="|&;()<>")
    words.whitespace_split = True
    words.commenters = ""
    ours: list[str] | None = None
    for word in (*words, "|"):
        if set(word) <= set("|&;()<>"):
            if ours is not None:
                yield ours
            ours = None
        elif ours is not None:
            ours.append(word)
        elif word == "pagemill":
            ours = []


def parse(arguments: list[str]) -> tuple[str, ...]:
    """Have a command read its arguments and do nothing; returns which one it is."""
    command, path, rest = ROOT, (), arguments
    while hasattr(command, "commands") and rest and rest[0] in command.commands:
        path, command, rest = (*path, rest[0]), command.commands[rest[0]], rest[1:]
    command.make_context(" ".join(path), list(rest))
    return path


@quick
@pytest.mark.parametrize("path", list(commands()), ids=lambda path: " ".join(path) or "pagemill")
def test_every_command_has_an_example_that_it_understands(path: tuple[str, ...]) -> None:
    out, err = run_here(*path, "--help")

    lines = examples(out)
    assert lines, out
    assert err == ""
    # A substitution is a command like any other.
    parts = [
        part for line in lines for part in our_parts(line.replace('"$(', "( ").replace(')"', " )"))
    ]
    assert parts, lines
    assert any(parse(part)[: len(path)] == path for part in parts), lines


@quick
@pytest.mark.parametrize("path", list(commands()), ids=lambda path: " ".join(path) or "pagemill")
def test_every_option_and_command_says_what_it_is(path: tuple[str, ...]) -> None:
    command = ROOT
    for name in path:
        command = command.commands[name]
    assert command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None), parameter.name


@quick
@pytest.mark.parametrize("path", list(commands()), ids=lambda path: " ".join(path) or "pagemill")
def test_nothing_is_cut_or_too_long_for_80_columns(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a list of commands, a sentence that has no room would end with an ellipsis."""
    monkeypatch.setenv("COLUMNS", "80")

    out, _ = run_here(*path, "--help")

    assert [line for line in out.splitlines() if len(line) > 80] == []
    listed = out.partition("\nCommands:\n")[2]
    assert [line for line in listed.splitlines() if "..." in line or "…" in line] == []


@quick
def test_an_example_that_is_wrong_would_be_found() -> None:
    assert examples("  Example:\n    pagemill list\n    x | pagemill wait a\n\nOptions:\n") == [
        "pagemill list", "x | pagemill wait a",
    ]  # fmt: skip
    assert list(our_parts("A=b pagemill db check && x | pagemill wait 'a b' > c")) == [
        ["db", "check"], ["wait", "a b"],
    ]  # fmt: skip
    with pytest.raises(Exception, match="nonsense"):
        parse(["list", "--nonsense"])
    with pytest.raises(Exception, match="lost"):
        parse(["list", "--state", "lost"])


# ---- completion


def in_bash(home: Path, script: str) -> list[str]:
    """Lines that a script prints in an interactive-like bash, with our program as `pagemill`."""
    program = home / "bin" / "pagemill"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m jobs "$@"\n')
    program.chmod(0o755)
    # Where many tests run at once, the database takes longer than a person would wait.
    patient = "import jobs.cli.completion as c\nc._PATIENCE_SECONDS = 60\n"
    (program.parent / "sitecustomize.py").write_text(patient)
    env = {
        **os.environ,
        "HOME": str(home),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(program.parent),
    }
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_bash_completes_commands_options_states_and_ids(cli: CommandLine) -> None:
    first, second = (cli.submit({"prompt": "a"}) for _ in range(2))
    cli("cancel", first)
    asked = [
        ("sta",), ("status", "--wa"), ("list", "--state", "q"), ("db", "up"),
        ("status", "job_"), ("status", second[:-1]), ("delete", "job_"),
        ("worker", "--model", ""), ("run", "x", "--model", "smol"),
    ]  # fmt: skip
    script = ["source <(pagemill --show-completion)"]
    for words in asked:
        quoted = " ".join(map(shlex.quote, ("pagemill", *words)))
        script += [
            f"COMP_WORDS=({quoted}) COMP_CWORD={len(words)}",
            "_pagemill_completion pagemill",
            'echo "${COMPREPLY[*]}"',
        ]

    found = [line.split() for line in in_bash(cli.home, "\n".join(script))]

    assert found == [
        ["status"], ["--watch"], ["queued"], ["upgrade"],
        [second, first], [second], [first],
        ["the-model", "smollm2-135m"], ["smollm2-135m"],
    ]  # fmt: skip


def test_completion_is_installed_once_for_all(cli: CommandLine) -> None:
    (said,) = [
        line for line in in_bash(cli.home, "pagemill --install-completion; true") if "bash" in line
    ]
    assert "installed" in said
    assert "pagemill" in (cli.home / ".bashrc").read_text()
    lines = in_bash(cli.home, "source ~/.bashrc; complete -p pagemill")
    assert lines == ["complete -o default -F _pagemill_completion pagemill"]


@quick
def test_what_cannot_be_known_is_not_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(completion, "_PATIENCE_SECONDS", 0.5)
    monkeypatch.setenv("PAGEMILL_HOME", str(tmp_path / "home"))
    assert completion.job_ids("") == []
    assert not (tmp_path / "home").exists()
    monkeypatch.setenv("PAGEMILL_DATABASE_URL", "nonsense")
    assert completion.job_ids("") == []
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        monkeypatch.setenv(
            "PAGEMILL_DATABASE_URL", f"postgresql://127.0.0.1:{port}/x?connect_timeout=100"
        )
        began = time.monotonic()
        assert completion.models("") == [("smollm2-135m", "a small model")]
        assert time.monotonic() - began < 50
    assert capfd.readouterr() == ("", "")
