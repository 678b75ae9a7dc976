"""A launch function that torch knows as an operator of its own.

Called as usual, the launch function runs: torch's dispatcher would cost the host more than the
launch. Under `torch.compile` the operator is called, with its fake, and the kernel stays whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

NAMESPACE = "pagemill"


class Operation:
    """One operation of the GPU.

    Attributes:
        name: in the registry, and of the operator `torch.ops.pagemill.<name>`.
        launch: launches the kernel.
        operator: the same as an operator of torch.
    """

    def __init__(
        self,
        launch: Callable[..., Any],
        mutates_args: Sequence[str],
        fake: Callable[..., Any] | None,
    ) -> None:
        self.name = launch.__name__
        self.launch = launch
        self.operator = torch.library.custom_op(
            f"{NAMESPACE}::{self.name}", launch, mutates_args=tuple(mutates_args)
        )
        self.operator.register_fake(fake or _nothing)

    def __call__(self, *arguments: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.operator(*arguments)
        return self.launch(*arguments)


def operation(
    *, mutates_args: Sequence[str] = (), fake: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], Operation]:
    """Register a launch function; its annotations are the operator's schema.

    Args:
        mutates_args: arguments that it changes in place.
        fake: of the same arguments, returns empty tensors of the shapes and dtypes of the result;
            None where there is no result.
    """
    return lambda launch: Operation(launch, mutates_args, fake)


def _nothing(*_: Any) -> None:
    return None
