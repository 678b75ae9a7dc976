"""Runs tests with each library of C++ kernels that was built and that this processor can run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernels.cpu import library


def variants() -> list[str]:
    """The libraries, the best one first; `none` where there are none and torch computes."""
    best = library.variant()
    fitting = {None: [], "avx512": ["avx512", "avx2"]}.get(best, [best])
    folder = Path(library.__file__).parent
    return [v for v in fitting if (folder / f"_{v}.abi3.so").is_file()] or ["none"]


@contextmanager
def using(variant: str) -> Iterator[None]:
    """Compute with one library, or with torch where `variant` is `none`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(library.VARIANT_VARIABLE, variant)
        _forget()
        try:
            assert (library.library() is None) == (variant == "none")
            yield
        finally:
            _forget()


def _forget() -> None:
    library.library.cache_clear()
    library.find.cache_clear()
