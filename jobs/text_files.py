"""Texts that an option names by their file."""

from __future__ import annotations

from pathlib import Path

from jobs.errors import UsageError


def text_of(path: Path, option: str = "--template") -> str:
    """What a file holds.

    Raises:
        UsageError: it cannot be read, or is no UTF-8.
    """
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{option} {path} is not UTF-8: {error}") from None
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be read: {error.strerror}") from None
