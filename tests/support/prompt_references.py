"""What transformers says about the tokens of a prompt, each prompt alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


@torch.inference_mode()
def logprobs(model: Any, tokens: Sequence[int]) -> torch.Tensor:
    """[len(tokens) - 1, vocab_size]: log probabilities at each token from the second on."""
    logits = model(torch.tensor([list(tokens)])).logits[0, :-1]
    found: torch.Tensor = logits.float().log_softmax(-1)
    return found


def continuation(model: Any, tokens: Sequence[int], context: int) -> tuple[torch.Tensor, bool]:
    """Log probabilities of the tokens after the context, and whether they are the greedy ones."""
    rows = logprobs(model, tokens)[context - 1 :]
    targets = torch.tensor(list(tokens[context:]))
    return rows.gather(-1, targets[:, None])[:, 0], bool((rows.argmax(-1) == targets).all())


@torch.inference_mode()
def hidden_states(model: Any, tokens: Sequence[int]) -> torch.Tensor:
    """[len(tokens), hidden_size], after the final norm."""
    found = model(torch.tensor([list(tokens)]), output_hidden_states=True).hidden_states[-1][0]
    states: torch.Tensor = found.float()
    return states
