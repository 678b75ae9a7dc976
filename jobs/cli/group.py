"""How every command ends: exit codes, errors as sentences, a reader that went away."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from types import TracebackType
from typing import Any

import typer
from typer.core import TyperGroup

from jobs.cli.console import note
from jobs.ctrl_c import INTERRUPTED
from jobs.errors import JobsError, StorageError, UsageError
from jobs.leaving import interruption_behind

BROKEN_PIPE = 141  # what a shell reports of a program that SIGPIPE ended
# What a disk says that takes no more. Everything but stdout is written by code that knows what it
# writes, and says so in an error of ours.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

# Base of all errors of the command line itself (unknown option, missing argument, …).
_BadUsage: type[Any] = typer.BadParameter.__mro__[1]


class Helpful(TyperGroup):
    """Commands that show their help where none of them is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            print(ctx.get_help())
            raise typer.Exit
        return super().parse_args(ctx, args)


class Commands(Helpful):
    """The root of the commands.

    A `JobsError` becomes one sentence on stderr and its exit code; bad usage ends with 64, as
    2 is an answer of `wait`.
    """

    def main(self, *args: Any, **options: Any) -> Any:
        options["standalone_mode"] = False
        try:
            code = super().main(*args, **options)
        except _BadUsage as error:
            # Typer hands on what the converter of values raised, with the name of its class.
            note(f"Error: {error.format_message().replace(': Value error, ', ': ', 1)}")
            if error.ctx is not None:
                note(f"Try `{error.ctx.command_path} --help`.")
            code = UsageError.exit_code
        except typer.Abort:
            code = INTERRUPTED
        except OSError as error:
            code = _stdout_failed(error)
        code = code if isinstance(code, int) else 0
        try:
            sys.stdout.flush()
        except OSError as error:
            code = code or _stdout_failed(error)
            _drop_stdout()
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _drop_stdout()
            raise typer.Exit(BROKEN_PIPE) from None
        except JobsError as error:
            if interruption := interruption_behind(error):
                raise interruption from None
            if ctx.params.get("debug"):
                note(_traceback(error))
            else:
                note(f"Error: {error}")
            raise typer.Exit(error.exit_code) from None


def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Shows an error that nobody foresaw, as Python does; for `sys.excepthook`."""
    note(_traceback(error))


def _traceback(error: BaseException) -> str:
    """Of this error and those behind it, which may quote a URL with its password."""
    from jobs.scrubbing import Sieve

    text = "".join(traceback.format_exception(error)).rstrip()
    return Sieve.of_env(*(word for word in sys.argv if "://" in word))(text)


def _stdout_failed(error: OSError) -> int:
    """The exit code of a command that could not write to stdout. Says why, unless it is a pipe."""
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    if error.errno not in _FULL:
        raise error
    note(f"Error: cannot write to stdout: {error.strerror}")
    return StorageError.exit_code


def _drop_stdout() -> None:
    """Let go of what is still buffered: at exit it would be written, and fail, once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
