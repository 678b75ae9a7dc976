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
    model: Any,
    prompts: Iterable[Sequence[int]],
    max_new_tokens: int,
    eos: list[int] | None,
    at_once: int = 1,
) -> list[Reference]:
    """Greedy answers of `generate`.

    Args:
        eos: ids that end an answer; None never stops early.
        at_once: prompts of a batch, in which the shorter ones are padded on the left. More than
            one spares a model of some size to be read from memory for each prompt by itself.
    """
    asked = [list(prompt) for prompt in prompts]
    by_length = sorted(range(len(asked)), key=lambda number: len(asked[number]))
    found: dict[int, Reference] = {}
    for start in range(0, len(asked), at_once):
        batch = by_length[start : start + at_once]
        answers = _of_a_batch(model, [asked[i] for i in batch], max_new_tokens, eos)
        found.update(zip(batch, answers, strict=True))
    return [found[number] for number in range(len(asked))]


def _of_a_batch(
    model: Any, prompts: list[list[int]], max_new_tokens: int, eos: list[int] | None
) -> list[Reference]:
    import torch

    length = max(map(len, prompts))
    done = model.generate(
        torch.tensor([[0] * (length - len(p)) + p for p in prompts]),
        attention_mask=torch.tensor([[0] * (length - len(p)) + [1] * len(p) for p in prompts]),
        max_new_tokens=max_new_tokens,
        do_sample=False,
        eos_token_id=eos,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    best = torch.stack([step.topk(2).values for step in done.logits], dim=1)
    margins = (best[..., 0] - best[..., 1]).tolist()
    answers = []
    for tokens, apart in zip(done.sequences[:, length:].tolist(), margins, strict=True):
        ends = (at for at, token in enumerate(tokens, 1) if token in (eos or ()))
        end = next(ends, len(tokens))  # what follows is padding, where others went on
        answers.append(Reference(tuple(tokens[:end]), tuple(apart[:end])))
    return answers


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
