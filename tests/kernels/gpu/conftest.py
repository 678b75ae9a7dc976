"""The Triton kernels run in the interpreter, which is mended first."""

from __future__ import annotations

from tests.support.triton_interpreter import mend

mend()
