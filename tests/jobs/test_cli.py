"""The whole program: its database, its help, its version."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine

pytestmark = pytest.mark.quick


def test_another_database_is_not_touched_without_being_asked(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGEMILL_DATABASE_URL", f"sqlite:///{tmp_path / 'other.db'}")

    for command in (["submit", "-", "--model", "m"], ["worker", "--model", "m"]):
        _, err = cli(*command, stdin='{"prompt": "a"}\n', expect=69)
        assert "pagemill db upgrade" in err
    assert not (tmp_path / "other.db").exists()
    cli("db", "check", expect=69)
    cli("db", "upgrade")
    cli("db", "check")
    cli("submit", "-", "--model", "m", stdin='{"prompt": "a"}\n')


def test_the_worker_takes_the_place_of_the_command(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, arguments: seen.append([path, *arguments]))

    cli(
        "worker", "--model", "m", "--concurrency", "2", "--dtype", "float32", "--device", "cpu",
        "--block-size", "8", "--num-blocks", "9", "--max-model-len", "10", "--max-num-seqs", "11",
        "--max-num-batched-tokens", "12", "--no-prefix-cache", "--threads", "1",
        "--gpu-memory-utilization", "0.5", "--swap-space", "1.5", "--watermark", "0.05",
        "--deterministic", "--no-overlap", "--cuda-graphs",
    )  # fmt: skip

    from worker.options import WorkerOptions

    assert seen[0][:5] == [sys.executable, sys.executable, "-P", "-m", "worker"]
    options = WorkerOptions.parse(seen[0][5:], {"PAGEMILL_HOME": str(cli.home)})
    assert (options.model, options.concurrency) == ("m", 2)
    assert options.engine == {
        "model": "m",
        "dtype": "float32",
        "device": "cpu",
        "block_size": 8,
        "num_blocks": 9,
        "max_model_len": 10,
        "max_num_seqs": 11,
        "max_num_batched_tokens": 12,
        "threads": 1,
        "gpu_memory_utilization": 0.5,
        "swap_space": 1.5,
        "watermark": 0.05,
        "enable_prefix_caching": False,
        "deterministic": True,
        "overlap": False,
        "cuda_graphs": True,
    }


@pytest.mark.parametrize("command", [[], ["db"]])
def test_commands_without_a_command_show_their_help(cli: CommandLine, command: list[str]) -> None:
    assert cli(*command) == cli(*command, "--help")


def test_version(cli: CommandLine) -> None:
    assert cli("--version")[0] == "pagemill 0.1.0\n"


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from jobs.cli.app import app\n"
        "assert CliRunner().invoke(app, ['run', '--help']).exit_code == 0\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    heavy = {"torch", "transformers", "pyarrow", "sqlalchemy", "celery", "alembic", "engine"}
    assert heavy.isdisjoint(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["shell-init", "ksh"], "'SHELL': 'ksh' is not one of 'bash', 'zsh', 'fish'."),
        (["list", "--state", "odd"], "'--state': 'odd' is not one of 'validating', "),
        (
            ["beat", "--log-format", "xml"],
            "'--log-format' (env var: 'PAGEMILL_LOG_FORMAT'): 'xml' is not one of ",
        ),
        (["list", "--state", "x: Value error, y"], "'--state': 'x: Value error, y' is not one of "),
    ],
)
def test_a_word_that_is_not_one_of_a_few_is_told_in_plain_words(
    cli: CommandLine, arguments: list[str], sentence: str
) -> None:
    _, err = cli(*arguments, expect=64)

    assert err.startswith(f"Error: Invalid value for {sentence}")
