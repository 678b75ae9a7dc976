"""Where answers are written: checked before any work is done for them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from jobs.errors import UsageError
from jobs.formats import OutputFormat, format_of

STDOUT = "-"


@dataclass(frozen=True, slots=True)
class Target:
    """A file, or stdout.

    Attributes:
        given: as it was written on the command line.
        path: None for stdout.
    """

    given: str
    path: Path | None
    form: OutputFormat

    def refuse_input(self, source: str, whose: str = "the job's own input") -> None:
        """See that the file is no input of the job.

        Args:
            source: the job's input: a path, a URI, or `-`.
            whose: what it is, for the error.

        Raises:
            UsageError: it is the input, or a file in the folder that is.
        """
        if self.path is None or not os.path.exists(self.path):
            return
        if source.startswith("file://"):
            source = unquote(urlsplit(source).path)
        source = os.path.expanduser(source)
        ours = self.path.parent if os.path.isdir(source) else self.path
        if os.path.exists(source) and os.path.samefile(ours, source):
            raise UsageError(f"-o {self.given} would overwrite {whose}; name another file")

    def refuse_inputs(self, sources: Sequence[str]) -> None:
        """See that the file is none of the data set of an evaluation.

        Raises:
            UsageError: it is one, or a file in a folder that is.
        """
        for source in sources:
            self.refuse_input(source, "the evaluation's data set")

    def refuse_openai(self) -> None:
        """See that it is not to be in OpenAI's form, which rows of jobs alone have.

        Raises:
            UsageError: it is.
        """
        if self.form is OutputFormat.OPENAI:
            raise UsageError("scores have no form of OpenAI's; use parquet, jsonl or csv")


def chosen_target(output: str, form: OutputFormat | None, format_option: str) -> Target:
    """The target that was asked for; it is not touched.

    Args:
        format_option: what the option of `form` is called.

    Raises:
        UsageError: the file could not be written, or its format is not clear.
    """
    if output == STDOUT:
        if form is OutputFormat.PARQUET and sys.stdout.isatty():
            raise UsageError(
                f"Parquet is not for a terminal; name a file with -o, or use {format_option} jsonl"
            )
        return Target(output, None, form or OutputFormat.JSONL)
    path = writable_path(output)
    return Target(output, path, form or _format_of(output, format_option))


def writable_path(output: str) -> Path:
    """The path of a file that can be written; it is not touched.

    Raises:
        UsageError: it cannot.
    """
    path = Path(os.path.realpath(os.path.expanduser(output)))
    _check_writable(output, path)
    return path


def _format_of(output: str, format_option: str) -> OutputFormat:
    """By the ending; Parquet, if there is none."""
    path = Path(output)
    known = format_of(path)
    if known is None and path.suffix:
        raise UsageError(
            f"-o {output}: the ending {path.suffix} names no format; use .parquet, .jsonl "
            f"or .csv, or say {format_option} parquet, jsonl, csv or openai"
        )
    return known or OutputFormat.PARQUET


def _check_writable(output: str, path: Path) -> None:
    folder = path.parent
    if os.path.isdir(path):
        raise UsageError(f"-o {output} is a folder; name the file to write in it")
    if not os.path.isdir(folder):
        raise UsageError(
            f"-o {output}: there is no folder {folder}; make it first, or name another file"
        )
    # A file is replaced as a whole, which its folder must allow; a pipe is written itself.
    special = os.path.exists(path) and not os.path.isfile(path)
    allowed = os.access(path, os.W_OK) if special else os.access(folder, os.W_OK | os.X_OK)
    if not allowed:
        raise UsageError(
            f"-o {output}: {path if special else folder} cannot be written; name a file in a "
            "folder of yours, or change the permissions"
        )
    try:
        os.lstat(path)
    except FileNotFoundError:
        pass
    except OSError as error:  # a name that is too long
        raise UsageError(f"-o {output}: {error.strerror}; name another file") from None
