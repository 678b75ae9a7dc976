"""Each operation is a sound operator of torch: schema, fake, what it changes, `torch.compile`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from kernels.gpu.operations import OPERATIONS
from tests.kernels.gpu.operator_samples import SAMPLES


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def copied(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same arguments in memory of their own."""
    found: tuple[Any, ...] = tree_map(
        lambda value: value.clone() if isinstance(value, Tensor) else value, arguments
    )
    return found


def test_each_operation_has_a_sample() -> None:
    assert SAMPLES.keys() == OPERATIONS.keys()


@pytest.mark.parametrize("name", OPERATIONS)
def test_schema_fake_and_dispatch(name: str) -> None:
    torch.library.opcheck(OPERATIONS[name].operator, SAMPLES[name]())


@pytest.mark.parametrize("name", OPERATIONS)
def test_it_is_whole_in_a_compiled_graph(name: str) -> None:
    """Results and changed arguments are those of the launch function."""
    operation, arguments = OPERATIONS[name], SAMPLES[name]()
    compiled = torch.compile(lambda *given: operation(*given), fullgraph=True, backend="aot_eager")
    launched, traced = copied(arguments), copied(arguments)

    expected, found = operation(*launched), compiled(*traced)

    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(traced, launched, rtol=0, atol=0, equal_nan=True)
