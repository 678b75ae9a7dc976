"""The engine's way on a GPU, on a CPU: its kernels run in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.gpu_kernels import serving
from tests.support.triton_interpreter import mend


@contextmanager
def interpreted_gpu() -> Iterator[None]:
    """Have the Triton kernels serve the CPU."""
    mend()
    with serving("interpreter"):
        yield
