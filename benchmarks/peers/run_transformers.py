"""transformers in float32: static batches, its continuous batching, or one prompt at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adapter import Generate, Options, Row, run

if TYPE_CHECKING:
    import torch

STATIC_BATCH = 32
REQUESTS_AT_ONCE = 16


def load(options: Options) -> Generate:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(options.threads)
    # generate_batch takes its attention by name from its own paged variants.
    model = AutoModelForCausalLM.from_pretrained(
        options.model, dtype=torch.float32, attn_implementation="sdpa"
    ).eval()
    model.generation_config.eos_token_id = None  # the workload ignores it

    if options.method == "generate_batch":
        return lambda rows: _continuous(model, rows)
    size = STATIC_BATCH if options.method == "generate" else 1
    return lambda rows: _static(model, rows, size)


def _static(model: Any, rows: list[Row], size: int) -> list[list[int]]:
    """Batches of rows of like length, padded on the left; each goes on to its longest answer."""
    import torch

    outputs: list[list[int]] = [[] for _ in rows]
    order = sorted(range(len(rows)), key=lambda i: (len(rows[i].ids), rows[i].max_tokens))
    for start in range(0, len(order), size):
        places = order[start : start + size]
        ids, mask = _left_padded([rows[i].ids for i in places])
        longest = max(rows[i].max_tokens for i in places)
        with torch.inference_mode():
            found = model.generate(
                ids, attention_mask=mask, do_sample=False, max_new_tokens=longest, pad_token_id=0
            )
        for i, tokens in zip(places, found[:, ids.shape[1] :].tolist(), strict=True):
            outputs[i] = tokens[: rows[i].max_tokens]
    return outputs


def _left_padded(prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask, both int64 [prompts, longest prompt]."""
    import torch

    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    return ids, mask


def _continuous(model: Any, rows: list[Row]) -> list[list[int]]:
    """`generate_batch` on few requests at a time, of like length of answer, which it does best."""
    from transformers import GenerationConfig
    from transformers.generation import ContinuousBatchingConfig

    batching = ContinuousBatchingConfig(page_size=32, num_blocks=1024, max_batch_tokens=512)
    outputs: list[list[int]] = [[] for _ in rows]
    order = sorted(range(len(rows)), key=lambda i: rows[i].max_tokens)
    for start in range(0, len(order), REQUESTS_AT_ONCE):
        places = order[start : start + REQUESTS_AT_ONCE]
        longest = max(rows[i].max_tokens for i in places)
        found = model.generate_batch(
            [rows[i].ids for i in places],
            generation_config=GenerationConfig(
                do_sample=False, max_new_tokens=longest, eos_token_id=-1, pad_token_id=0
            ),
            continuous_batching_config=batching,
            progress_bar=False,
        )
        # Results are keyed by request ids that number the prompts.
        ordered = sorted(found.items(), key=lambda item: int(item[0].rsplit("_", 1)[-1]))
        for i, (_, output) in zip(places, ordered, strict=True):
            outputs[i] = output.generated_tokens[: rows[i].max_tokens]
    return outputs


if __name__ == "__main__":
    run(load, "transformers", "torch")
