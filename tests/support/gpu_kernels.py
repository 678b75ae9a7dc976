"""Runs tests with the Triton kernels in the interpreter, or without them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kernels.gpu import library


@contextmanager
def serving(variant: str) -> Iterator[None]:
    """With `interpreter`, the kernels serve processors; with `none`, no device."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(library.VARIANT_VARIABLE, variant)
        library.forget()
        try:
            yield
        finally:
            library.forget()
