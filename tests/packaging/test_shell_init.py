"""`pagemill shell-init` in the real shells, as a person and as a script use them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from jobs.cli.app import app
from tests.support.deployment import Deployment
from tests.support.terminal import Terminal, terminal

SHELLS = ("bash", "zsh", "fish")
BIN = Path(sys.executable).parent
# The line that puts the function there, as docs/install.md and the help say.
LINE = {
    "bash": 'eval "$(pagemill shell-init bash)"',
    "zsh": 'eval "$(pagemill shell-init zsh)"',
    "fish": "pagemill shell-init fish | source",
}
START_UP_FILE = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/config.fish"}
PROMPT = {
    "bash": "PS1='@@ '",
    "zsh": "PS1='@@ '; unsetopt prompt_sp",
    "fish": "function fish_prompt; printf '@@ '; end; set fish_greeting",
}
STRICT = {"bash": "set -euo pipefail", "zsh": "set -euo pipefail", "fish": ""}

pytestmark = pytest.mark.parametrize("shell", SHELLS)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    home = tmp_path / "home"
    made = Deployment(home)
    made.env |= {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "ZDOTDIR": str(home),
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    }
    (home / "tickets.jsonl").write_text('{"prompt": "one"}\n{"prompt": "two"}\n')
    return made


@pytest.fixture
def with_function(shell: str, deployment: Deployment) -> Iterator[Terminal]:
    with at_prompt(shell, deployment, LINE[shell]) as session:
        yield session


def at_prompt(shell: str, deployment: Deployment, line: str):
    """An interactive shell whose start-up file has that line."""
    file = deployment.home / START_UP_FILE[shell]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{line}\n{PROMPT[shell]}\n")
    return terminal([shell, "-i"], deployment.env, deployment.home)


def script(
    shell: str, deployment: Deployment, text: str, *arguments: str, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a script; the function is there, and mistakes end it."""
    path = deployment.home / f"script.{shell}"
    path.write_text(f"{LINE[shell]}\n{STRICT[shell]}\n{text}\n")
    return subprocess.run(
        [shutil.which(shell) or shell, str(path), *arguments],
        env=deployment.env | env, cwd=deployment.home, input='{"prompt": "of stdin"}\n',
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_at_a_prompt_our_commands_are_ours(with_function, deployment, shell):
    job = with_function.type("jobs submit tickets.jsonl --model /m 2>notes").strip()
    assert re.match(r"job_[a-z0-9]{20}", job)
    job = job.split()[0]
    assert deployment.status(job)["rows"]["total"] == 2
    assert job in with_function.type("jobs list")
    assert "queued" in with_function.type(f"jobs status {job}")
    assert "pagemill 0." in with_function.type("jobs --version")
    assert "Usage: pagemill" in with_function.type("jobs --help")


def test_at_a_prompt_everything_else_is_the_builtin(with_function, deployment, shell):
    """Whatever the builtin says without the function, it says with it."""
    inner = "(jobs -p)" if shell == "fish" else "$(jobs -p)"
    lines = ["jobs", "sleep 600 &", "sleep 700 &", "jobs", "jobs -l", "jobs -p", "jobs %1",
             "jobs %2 %1", "jobs > listed; cat listed", f"echo {inner}"]  # fmt: skip
    if shell != "bash":  # which lets no function of a pipeline see its jobs
        lines.append("jobs | cat")

    def session(at: Terminal) -> list[str]:
        answers = [re.sub(r"\d{3,}|⏎\s*", "", at.type(line)) for line in lines]
        at.type("kill %1 %2")
        return answers

    ours = session(with_function)
    with at_prompt(shell, deployment, "") as plain:
        assert ours == session(plain)
    assert "sleep" in ours[3]
    assert "unning" in ours[6]
    assert "No such file" not in "".join(ours)


def test_a_job_that_is_not_there_is_the_builtins_to_refuse(with_function, shell):
    status = "$status" if shell == "fish" else "$?"
    answer = with_function.type(f"jobs %9; echo ended: {status}")
    assert "%9" in answer
    assert "Error: " not in answer
    assert re.search(r"ended: [1-9]", answer)


def test_arguments_arrive_as_they_were_typed(deployment, shell):
    (deployment.home / "a file *.jsonl").write_text('{"prompt": "x"}\n')
    name = ' two  words * ? [x] ~ $HOME " ; & | > < #'
    done = script(
        shell, deployment, f"jobs submit 'a file *.jsonl' --model /m --name '{name}' --stop \"'\""
    )
    assert done.returncode == 0, done.stderr
    assert deployment.status(done.stdout.strip())["name"] == name
    empty = script(shell, deployment, "jobs submit 'a file *.jsonl' --model /m --system ''")
    assert "--system is empty" in empty.stderr


def test_stdin_and_the_exit_status_are_those_of_the_program(deployment, shell):
    submitted = script(shell, deployment, "jobs submit - --format jsonl --model /m")
    assert submitted.returncode == 0, submitted.stderr
    assert deployment.status(submitted.stdout.strip())["rows"]["total"] == 1
    refused = script(shell, deployment, "jobs status job_2222222222")
    assert refused.returncode == 66
    assert "there is no job" in refused.stderr


def test_the_builtin_ends_no_strict_script(deployment, shell):
    done = script(shell, deployment, "jobs\nsleep 600 &\njobs\nkill %1 || kill $!\necho there")
    if shell == "fish":
        done = script(shell, deployment, "jobs\nsleep 600 &\njobs\nkill $last_pid\necho there")
    assert done.stdout.endswith("there\n"), done.stderr
    assert "sleep 600" in done.stdout


def test_an_alias_does_not_break_the_definition(deployment, shell):
    if shell == "fish":
        text = "alias jobs='jobs -l'\n" + LINE[shell]
    else:
        text = f"alias jobs='jobs -l'\n{LINE[shell]}\nunalias jobs"
    text = ("shopt -s expand_aliases\n" if shell == "bash" else "") + text
    done = script(shell, deployment, f"{text}\njobs list --json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_it_is_the_program_that_is_on_the_path(deployment, shell):
    """With a virtual environment active, `jobs` is its `pagemill`; without any, where it was."""
    other = deployment.home / "other"
    other.mkdir()
    (other / "pagemill").write_text('#!/bin/sh\necho the other one: "$@"\nexit 7\n')
    (other / "pagemill").chmod(0o755)
    put = "set -x PATH {}" if shell == "fish" else "export PATH={}"
    done = script(shell, deployment, f"{put.format(f'{other}:$PATH')}\njobs list 'a b'")
    assert (done.stdout, done.returncode) == ("the other one: list a b\n", 7)
    done = script(shell, deployment, f"{put.format('/usr/bin:/bin')}\njobs status 'no  job'")
    assert done.returncode == 66
    assert "'no  job'" in done.stderr


def test_every_command_and_long_option_is_handed_over(deployment, shell):
    printed = deployment.cli("shell-init", shell).stdout
    cases = re.search(r"^ +(?:case )?(submit.*?)\)?$", printed, re.MULTILINE)
    assert cases
    words = re.split(r"[| ]", cases[1])
    names = set(get_command(app).commands)  # type: ignore[attr-defined]
    assert "submit" in names
    completion = {"--install-completion", "--show-completion"}
    assert set(words) == names | {"--help", "--version", "--debug"} | completion
    # Nothing that a builtin takes: not empty, no short option, no job.
    assert all(re.fullmatch(r"(--)?[a-z][a-z-]+", word) for word in words)


def test_who_opens_a_terminal_waits_for_no_more_than_must_be(deployment, shell):
    """The way of a start-up file leaves out what Typer needs to convert arguments."""
    code = (
        f"import sys; sys.argv = ['pagemill', 'shell-init', '{shell}']\n"
        "from jobs.__main__ import main; main()\n"
        "sys.exit('pydantic' in sys.modules or 'sqlalchemy' in sys.modules)"
    )
    quick = subprocess.run(
        [sys.executable, "-c", code],
        env=deployment.env, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert quick.stdout == deployment.cli("--debug", "shell-init", shell).stdout


def test_the_line_is_the_documented_one(deployment, shell):
    page = (Path(__file__).parents[2] / "docs" / "install.md").read_text()
    assert LINE[shell] in page
    assert LINE[shell] in deployment.cli("shell-init", "--help").stdout


def test_the_path_of_the_program_is_quoted(deployment, shell, tmp_path):
    """The program may lie in a folder with spaces, quotes, backslashes and dollars."""
    folder = tmp_path / 'it\'s $HOME \\ "x" ü'
    folder.mkdir()
    (folder / "pagemill").symlink_to(BIN / "pagemill")
    printed = subprocess.run(
        [folder / "pagemill", "shell-init", shell],
        env=deployment.env, capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    (deployment.home / "there").write_text(printed)
    put = "set -x PATH" if shell == "fish" else "export PATH="
    done = script(
        shell, deployment, f"source ./there\n{put} /usr/bin:/bin\njobs --version".replace("= ", "=")
    )
    assert done.stdout.startswith("pagemill 0."), done.stderr
    assert str(folder.name).split("'")[1][:6] in printed


def test_without_a_shell_it_says_which_there_are(deployment, shell):
    done = deployment.cli("shell-init", expect=64)
    assert shell in done.stderr
