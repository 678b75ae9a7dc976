"""How every command ends: exit codes, errors as sentences, a reader that went away."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from jobs.cli.console import note
from jobs.errors import JobsError, UsageError

BROKEN_PIPE = 141  # what a shell reports of a program that SIGPIPE ended
INTERRUPTED = 130

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
            note(f"Error: {error.format_message()}")
            if error.ctx is not None:
                note(f"Try `{error.ctx.command_path} --help`.")
            code = UsageError.exit_code
        except typer.Abort:
            code = INTERRUPTED
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            # What is still buffered must not be flushed into the broken pipe at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(BROKEN_PIPE) from None
        except JobsError as error:
            if ctx.params.get("debug"):
                note(traceback.format_exc().rstrip())
            else:
                note(f"Error: {error}")
            raise typer.Exit(error.exit_code) from None
