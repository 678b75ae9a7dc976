"""What transformers finds by beam search."""

from __future__ import annotations

from typing import Any

import torch

from engine.sampling_params import SamplingParams


def beams_of_transformers(
    model: Any, prompt: tuple[int, ...], params: SamplingParams
) -> list[tuple[tuple[int, ...], float]]:
    """Tokens and score of each answer, the best first.

    Args:
        params: of a search; only its `stop_token_ids` end a beam.
    """
    ids = torch.tensor([prompt])
    stop = list(params.stop_token_ids)
    found = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=params.max_tokens,
        do_sample=False,
        num_beams=params.num_beams,
        num_return_sequences=params.num_return_sequences,
        length_penalty=params.length_penalty,
        early_stopping=params.early_stopping,
        eos_token_id=stop or None,
        pad_token_id=0,
        output_scores=True,
        return_dict_in_generate=True,
    )
    answers = []
    for tokens, score in zip(
        found.sequences.tolist(), found.sequences_scores.tolist(), strict=True
    ):
        answer = tokens[len(prompt) :]
        end = next((i for i, t in enumerate(answer) if t in stop), len(answer) - 1)
        answers.append((tuple(answer[: end + 1]), score))
    return answers
