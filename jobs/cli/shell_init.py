"""`pagemill shell-init`.

`jobs` is a builtin of every shell, and wins over a program of that name. A function wins over a
builtin, so it can hand the product's commands to the program, and all else to the builtin.
"""

from __future__ import annotations

import enum
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

PROGRAM = "pagemill"


class Shell(enum.StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def shell_init(
    shell: Annotated[
        Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False)
    ],
) -> None:
    """Print a function that lets a shell know the name `jobs`.

    There `jobs` is a builtin of the shell. The function hands the commands of this program to
    it, with --help and --version, and everything else (`jobs`, `jobs -l`, `jobs %1`) to the
    builtin. `help jobs` and `man` still tell of the builtin.

    \b
    Example:
      eval "$(pagemill shell-init bash)"

    \b
    bash, in ~/.bashrc:                     eval "$(pagemill shell-init bash)"
    zsh, in ~/.zshrc:                       eval "$(pagemill shell-init zsh)"
    fish, in ~/.config/fish/config.fish:    pagemill shell-init fish | source
    """
    from jobs.cli.app import app

    print(function(shell, words_of(app), this_program()), end="")


def asked_at_start_up(arguments: Sequence[str]) -> Shell | None:
    """Which shell asks, if the arguments are just those that its start-up file has.

    Whoever opens a terminal waits for it, and Typer takes as long again to convert arguments.
    """
    for shell in Shell:
        if list(arguments) == ["shell-init", shell.value]:
            return shell
    return None


def words_of(app: typer.Typer) -> list[str]:
    """First arguments that are for the program: its commands, and its long options."""
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    options = [name for parameter in root.params for name in parameter.opts]
    return [*root.commands, "--help", *(name for name in options if name.startswith("--"))]


def this_program() -> list[str]:
    """How to start the program that runs now from any folder."""
    name = Path(sys.argv[0]).name
    if name == PROGRAM and (found := shutil.which(sys.argv[0])):
        return [os.path.abspath(found)]
    beside = Path(sys.executable).with_name(PROGRAM)
    if beside.is_file():
        return [str(beside)]
    return [sys.executable, "-P", "-m", "jobs"]


def function(shell: Shell, words: Sequence[str], program: Sequence[str]) -> str:
    """The source of the function `jobs`.

    Args:
        words: first arguments that are not for the builtin.
        program: what is run where no `pagemill` is on PATH (any more); else that one is, so that
            `jobs` and `pagemill` are the same program in a virtual environment, too.
    """
    return _TEMPLATES[shell].format(
        words=("|" if shell is not Shell.FISH else " ").join(words),
        program=" ".join(
            (_quoted_for_fish if shell is Shell.FISH else shlex.quote)(p) for p in program
        ),
    )


def _quoted_for_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# `function jobs`, since an alias `jobs` would be expanded in `jobs()`. No word is left unquoted and
# no variable unset, for `set -eu`, and each branch ends with the command whose status counts.
_BASH = """\
# The commands of pagemill are its own; `jobs`, `jobs -l`, `jobs %1` are the shell's.
function jobs {{
  case "${{1-}}" in
    {words})
      if type -P pagemill >/dev/null; then
        command pagemill "$@"
      else
        {program} "$@"
      fi
      ;;
    *) builtin jobs "$@" ;;
  esac
}}
"""

_FISH = """\
# The commands of pagemill are its own; `jobs`, `jobs -l`, `jobs %1` are the shell's.
function jobs --description 'Jobs of pagemill, and of the shell'
    switch "$argv[1]"
        case {words}
            if command -q pagemill
                command pagemill $argv
            else
                {program} $argv
            end
        case '*'
            builtin jobs $argv
    end
end
"""

_TEMPLATES = {
    Shell.BASH: _BASH,
    Shell.ZSH: _BASH.replace("type -P", "whence -p"),
    Shell.FISH: _FISH,
}
