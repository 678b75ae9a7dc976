"""Which library of C++ kernels is taken, and what is said where none can be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernels.cpu import library
from kernels.kv_layout import LayerKV
from tests.support.cpu_kernels import using, variants

pytestmark = pytest.mark.quick


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder that libraries are looked for in."""
    monkeypatch.setattr(library, "_FOLDER", tmp_path)
    monkeypatch.setenv(library.VARIANT_VARIABLE, "avx2")
    library.library.cache_clear()
    yield tmp_path
    library.library.cache_clear()


def said(caplog: pytest.LogCaptureFixture) -> str:
    with caplog.at_level("WARNING", "pagemill.engine"):
        assert library.library() is None
    library.library.cache_clear()
    return caplog.text


def test_a_missing_library_is_said(elsewhere: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert ".abi3.so is missing, so attention" in said(caplog)


def test_a_damaged_library_is_said(elsewhere: Path, caplog: pytest.LogCaptureFixture) -> None:
    (elsewhere / f"_{library.variant()}.abi3.so").write_bytes(b"no library")
    assert "cannot be loaded" in said(caplog)


@pytest.mark.parametrize("variant", variants())
def test_a_library_of_other_sources_is_not_used(
    variant: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with using(variant):
        monkeypatch.setattr(library, "sources_digest", lambda: "0" * 32)
        library.library.cache_clear()
        assert "was built from other sources" in said(caplog)


def test_a_library_that_does_not_say_what_it_was_built_from_is_not_used(
    elsewhere: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strange = next(Path(torch.__file__).parent.glob("lib/libtorch_global_deps*"))
    (elsewhere / f"_{library.variant()}.abi3.so").symlink_to(strange)
    assert "was built from other sources" in said(caplog)


@pytest.mark.parametrize("variant", variants())
def test_threads_are_those_of_torch(variant: str) -> None:
    """It brings no OpenMP of its own, whose pool would compete with torch's for the cores."""
    needed = (library._FOLDER / f"_{variant}.abi3.so").read_bytes()
    assert b"GOMP_parallel" in needed
    assert b"libgomp" not in needed
    assert b"libiomp" not in needed


def test_sizes_are_read_from_either_layout() -> None:
    kv = LayerKV.allocate(2, 8, 1, 4, dtype=torch.float32, by_head=True)
    assert kv.keys.shape == (2, 1, 4, 8)
    assert (kv.num_blocks, kv.block_size, kv.num_kv_heads, kv.head_dim) == (2, 8, 1, 4)
    keys, values = kv.read([1, 0])
    assert keys.shape == values.shape == (16, 1, 4)
