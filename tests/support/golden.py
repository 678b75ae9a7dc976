"""Greedy answers of transformers, and the rule by which ours are compared with them.

Float arithmetic moves a logit a little with the shape of the batch. So the first token that
differs is accepted only where the reference itself was all but undecided: its two best logits
less than `NEAR_TIE` apart. Everything before must be equal; what follows it has no meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

NEAR_TIE = 1e-4


@dataclass(frozen=True)
class Reference:
    """What transformers' `generate` answers to one prompt, and by which margins."""

    token_ids: tuple[int, ...]
    margins: tuple[float, ...]  # best logit minus second best, at each generated token


def references(
    model: Any, prompts: Iterable[Sequence[int]], max_new_tokens: int, eos: list[int] | None
) -> list[Reference]:
    """Greedy answers, each prompt alone; `eos=None` never stops early."""
    import torch

    found = []
    for prompt in prompts:
        ids = torch.tensor([list(prompt)])
        done = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            eos_token_id=eos,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
        best = [step[0].topk(2).values for step in done.logits]
        found.append(
            Reference(
                tuple(done.sequences[0, ids.shape[1] :].tolist()),
                tuple((two[0] - two[1]).item() for two in best),
            )
        )
    return found


def near_ties(
    expected: Sequence[Reference], answers: Sequence[Sequence[int]]
) -> list[tuple[int, int, float]]:
    """(prompt, position, margin) of each accepted first divergence.

    Raises:
        AssertionError: an answer leaves the reference where that was sure of its token.
    """
    accepted = []
    assert len(expected) == len(answers)
    for number, (reference, answer) in enumerate(zip(expected, answers, strict=True)):
        if reference.token_ids == tuple(answer):
            continue
        length = max(len(reference.token_ids), len(answer))
        at = next(i for i in range(length) if reference.token_ids[i : i + 1] != answer[i : i + 1])
        margin = reference.margins[at] if at < len(reference.margins) else float("inf")
        assert margin < NEAR_TIE, (
            f"prompt {number} leaves transformers' answer at token {at}, where its best logits "
            f"are {margin:.6f} apart: {list(answer[: at + 1])} != "
            f"{list(reference.token_ids[: at + 1])}"
        )
        accepted.append((number, at, margin))
    return accepted
