"""Tiny random models with a real tokenizer and chat template, made in a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL_TOKENS = ["<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>"]


def byte_tokenizer() -> Any:
    """A byte-level tokenizer: ids 0-255 are bytes, the special tokens follow."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {symbol: i for i, symbol in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|bos|>",
        eos_token="<|eos|>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def build_tiny_model(
    folder: Path, architecture: str = "LlamaForCausalLM", *, seed: int = 0, **overrides: Any
) -> Path:
    """Save a random model that transformers and pagemill can both load.

    The head is scaled up so that the best logit stands clear of the second: greedy answers are
    then the same whatever the batch is, and a test may compare texts.
    """
    import torch
    import transformers

    tokenizer = byte_tokenizer()
    model_class = getattr(transformers, architecture)
    config = model_class.config_class(
        **{
            "vocab_size": len(tokenizer),
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 2048,
            "tie_word_embeddings": False,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "initializer_range": 0.2,
            **overrides,
        }
    )
    torch.manual_seed(seed)
    model = model_class(config).to(torch.float32)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def randomize(folder: Path) -> Any:
    """Make biases and norms of a saved model random too; returns transformers' own model.

    transformers starts biases with 0 and norms with 1, so that a decoder without them would
    give the same answers.
    """
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    model.save_pretrained(folder)
    return model
