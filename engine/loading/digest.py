"""Identity of a model's content, the same on every host that has the same files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash

_SAMPLES = 64
_SAMPLE_BYTES = 1 << 16
# What decides an answer: configuration, tokenizer, chat template, weights.
_SUFFIXES = (".json", ".jinja", ".model", ".safetensors", ".txt")


def folder_digest(folder: Path) -> str:
    """Digest of the files in a model's folder, by name and content."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in _SUFFIXES and path.is_file():
            digest.update(path.name.encode() + b"\0")
            _update(digest, path)
    return digest.hexdigest()[:40]


def file_digest(path: Path) -> str:
    """Digest of one file's content."""
    digest = hashlib.sha256()
    _update(digest, path)
    return digest.hexdigest()[:40]


def _update(digest: _Hash, path: Path) -> None:
    """Add a file: all of a small one, its size and samples of a large one.

    A model of many GB is identified in a moment: 64 samples of 64 KiB, spread evenly from
    the first byte (with the header) to the last. Training changes every weight matrix, so
    two models that differ differ in samples too.
    """
    size = path.stat().st_size
    digest.update(size.to_bytes(8, "little"))
    with path.open("rb") as file:
        if size <= _SAMPLES * _SAMPLE_BYTES:
            digest.update(file.read())
            return
        for i in range(_SAMPLES):
            file.seek((size - _SAMPLE_BYTES) * i // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
