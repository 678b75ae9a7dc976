"""A folder that answers are written into."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from jobs.cli.target import STDOUT, Target, writable_path
from jobs.errors import UsageError
from jobs.formats import ENDINGS, OutputFormat


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, which need not be there.

    Attributes:
        given: as it was written on the command line.
    """

    given: str
    path: Path
    form: OutputFormat

    def file(self, name: str) -> Target:
        """One file in it, of a name without its ending.

        Raises:
            UsageError: it cannot be written.
        """
        if not self.path.is_dir():
            raise UsageError(
                f"-o {self.given}: there is no such folder; make it first, or name a file"
            )
        given = os.path.join(self.given, f"{name}{ENDINGS[self.form]}")
        return Target(given, writable_path(given), self.form)

    def check(self) -> None:
        """See that a file of each part may be written; nothing else may lie beside them.

        Raises:
            UsageError: the folder holds something, or cannot be written.
        """
        if not self.path.exists():
            writable_path(self.given.rstrip("/"))  # its own folder has to be there
            return
        try:
            holds = next(self.path.iterdir(), None)
        except OSError as error:
            raise UsageError(f"-o {self.given} cannot be read: {error.strerror}") from None
        if holds is not None:
            raise UsageError(
                f"-o {self.given} is a folder, and not empty: name a file, or a new folder, or "
                "give --single-file to write one file into it"
            )
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise UsageError(
                f"-o {self.given} cannot be written; name a folder of yours, or change the "
                "permissions"
            )


def chosen_folder(output: str, form: OutputFormat | None) -> Folder | None:
    """The folder that was asked for, which ends with a slash or is there; None if it is a file."""
    path = Path(os.path.realpath(os.path.expanduser(output)))
    if output == STDOUT or not (output.endswith("/") or path.is_dir()):
        return None
    if path.exists() and not path.is_dir():
        raise UsageError(f"-o {output} is a file; leave out the slash, or name a folder")
    return Folder(output, path, form or OutputFormat.PARQUET)
