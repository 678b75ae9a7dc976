"""Damaged weight files end in a model or in a ModelError, soon, and in bounded memory."""

from __future__ import annotations

import random
import resource
import shutil
import struct
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ModelError
from engine.loading import load_model, resolve_model
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.tiny_model import build_tiny_model

MOST_SECONDS, MOST_MEMORY = 20.0, 500 << 20
# What a length, a count or an offset may be made.
NUMBERS = [0, 1, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**60, 2**63 - 1, 2**63, 2**64 - 1]
PIECES = [
    b"\0",
    b"\xff",
    b"{",
    b'"',
    b"[" * 5000,
    b":",
    b"-1",
    b"99999999999999999999",
    b"I8",
    b"e",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("model"), vocab_size=261)


@pytest.fixture(scope="module")
def gguf(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    from transformers import AutoTokenizer, LlamaForCausalLM

    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    model: Any = LlamaForCausalLM.from_pretrained(folder)
    write_tiny_gguf(path, model, AutoTokenizer.from_pretrained(folder))
    return path.read_bytes()


def damaged(content: bytes, header: int, rng: random.Random) -> bytes:
    """Some changes, most of them in the header; or the file is cut off."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(header)
        match rng.randrange(4):
            case 0:
                changed[place] = rng.randrange(256)
            case 1:
                place -= place % 8
                changed[place : place + 8] = struct.pack("<Q", rng.choice(NUMBERS))
            case 2:
                changed[place:place] = rng.choice(PIECES)
            case 3:
                del changed[place : place + rng.randrange(9)]
    if rng.random() < 0.2:
        del changed[rng.randrange(len(changed)) :]
    return bytes(changed)


def refusals(path: Path, whole: bytes, header: int, files: int) -> int:
    """How many of so many damaged files are refused; the others are models."""
    rng = random.Random(path.name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said: list[str] = []
    for _ in range(files):
        path.write_bytes(damaged(whole, header, rng))
        started = time.monotonic()
        try:
            load_model(resolve_model(str(path if path.suffix == ".gguf" else path.parent)))
        except ModelError as error:
            said.append(str(error))
        assert time.monotonic() - started < MOST_SECONDS
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * (1 if sys.platform == "darwin" else 1024) < MOST_MEMORY
    assert all(path.parent.name in sentence and len(sentence) < 2000 for sentence in said)
    return len(said)


def safetensors(folder: Path, tmp_path: Path, files: int) -> int:
    work = shutil.copytree(folder, tmp_path / "damaged")
    path = work / "model.safetensors"
    whole = path.read_bytes()
    load_model(resolve_model(str(work)))
    (length,) = struct.unpack("<Q", whole[:8])
    return refusals(path, whole, 8 + length, files)


def ggufs(gguf: bytes, tmp_path: Path, files: int, patch: pytest.MonkeyPatch) -> int:
    patch.setenv("PAGEMILL_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "damaged").mkdir()
    path = tmp_path / "damaged" / "tiny.gguf"
    path.write_bytes(gguf)
    load_model(resolve_model(str(path)))
    return refusals(path, gguf, 6000, files)


def test_damaged_safetensors(folder: Path, tmp_path: Path) -> None:
    assert safetensors(folder, tmp_path, 300) > 150


def test_damaged_gguf_files(gguf: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ggufs(gguf, tmp_path, 150, monkeypatch) > 60


@pytest.mark.chaos
def test_many_damaged_weight_files(
    folder: Path, gguf: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("a", "b"):
        (tmp_path / part).mkdir()
    assert safetensors(folder, tmp_path / "a", 5000) > 2500
    assert ggufs(gguf, tmp_path / "b", 5000, monkeypatch) > 2000
