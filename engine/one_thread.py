"""Torch's own loops on a CPU, run by one thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Within it the bits of a sum over a vocabulary do not depend on the number of threads.

    Torch cuts a long row into as many parts as it has threads, and adds up the parts.

    Args:
        wanted: false leaves all as it is.
    """
    before = torch.get_num_threads()
    if not wanted or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
