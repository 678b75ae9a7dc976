"""Graphs on a CPU: what was captured is called again, with the tensors that it had then."""

from __future__ import annotations

from collections.abc import Callable

import torch


class CalledAgain:
    """In place of `engine.decode_graphs.CudaCapture`.

    Attributes:
        replayed: how often each captured step was, in the order in which they were captured.
    """

    replayed: list[int]

    def __init__(self, device: torch.device) -> None:
        CalledAgain.replayed = self.replayed = []

    def __call__(self, compute: Callable[[], None]) -> Callable[[], None]:
        compute()
        number = len(self.replayed)
        self.replayed.append(0)

        def replay() -> None:
            self.replayed[number] += 1
            compute()

        return replay
