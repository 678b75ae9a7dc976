"""Each row gets the log probabilities that it asks for, and no more."""

from __future__ import annotations

import pytest
import torch

from engine.step_logprobs import StepLogprobs
from kernels.logprobs import token_logprobs_reference

pytestmark = pytest.mark.quick


def fetched(
    logits: torch.Tensor, asked: list[int | None]
) -> dict[int, tuple[list[float], list[int]]]:
    launched = StepLogprobs.launch(asked, logits, logits.argmin(-1))
    assert launched is not None
    return {
        row: (found.values.tolist(), found.top_ids.tolist())
        for row, found in launched.fetch().items()
    }


@pytest.mark.parametrize("asked", [[2, None, 0, 7], [None, None, None, 0], [3, 3, 3, 3]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_told_apart(asked: list[int | None], dtype: torch.dtype) -> None:
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(0)).to(dtype)
    found = fetched(logits, asked)
    assert list(found) == [row for row, k in enumerate(asked) if k is not None]
    reference = token_logprobs_reference(logits, logits.argmin(-1), 50)
    for row, (values, top_ids) in found.items():
        k = asked[row]
        assert top_ids == reference.top_ids[row, :k].tolist()
        expected = [reference.chosen[row].item(), *reference.top[row, :k].tolist()]
        assert values == pytest.approx(expected, abs=1e-5)


def test_nobody_asks() -> None:
    logits = torch.zeros(2, 5)
    assert StepLogprobs.launch([None] * 2, logits, logits.argmax(-1)) is None


def test_a_vocabulary_that_is_smaller_than_what_is_asked_for() -> None:
    found = fetched(torch.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]), [20, 2])
    assert found[0][1] == [2, 1, 0]
    assert found[0][0] == pytest.approx([-2.4076, -0.4076, -1.4076, -2.4076], abs=1e-4)
    assert found[1][1] == [0, 1]
    assert len(found[1][0]) == 3
