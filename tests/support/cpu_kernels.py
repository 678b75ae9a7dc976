"""Runs a test with each library of C++ kernels that was built and that this processor can run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kernels.cpu import library


def variants() -> list[str]:
    """Names of the libraries, the best one first."""
    best = library.variant()
    assert best is not None, "no C++ kernels for this processor, so nothing to test"
    return {"avx512": ["avx512", "avx2"]}.get(best, [best])


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
