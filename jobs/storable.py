"""Texts in the form in which every database takes them."""

from __future__ import annotations


def storable(text: str) -> str:
    """A text whose NUL and lone surrogates (a file name that is not UTF-8) are escapes."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
