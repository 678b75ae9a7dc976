"""What is compiled ahead of time: a call of a launch function, as the engine makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A call whose kernels are compiled for every architecture and not launched.

    Attributes:
        name: unique; a row of the committed table for each kernel that the call launches.
        call: calls a launch function of `kernels.gpu` with tensors of the device `meta`.
        wgmma: the kernel multiplies matrices by warp groups on sm_90.
        async_copies: it fetches what it needs next while it computes (LDGSTS or TMA).
        pinned: compiled by `make test`; the others by `make aot` alone.
    """

    name: str
    call: Callable[[], object]
    wgmma: bool = False
    async_copies: bool = False
    pinned: bool = False
