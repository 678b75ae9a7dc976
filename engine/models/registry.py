"""Which architectures pagemill serves."""

from __future__ import annotations

from engine.errors import UnsupportedModel
from engine.models.llama import LlamaForCausalLM

DecoderModel = LlamaForCausalLM

ARCHITECTURES: dict[str, type[DecoderModel]] = {"LlamaForCausalLM": LlamaForCausalLM}


def model_class(architecture: str) -> type[DecoderModel]:
    """The class that serves an architecture; UnsupportedModel where none does."""
    try:
        return ARCHITECTURES[architecture]
    except KeyError:
        raise UnsupportedModel(
            f"the architecture {architecture} is not supported; supported are "
            f"{', '.join(sorted(ARCHITECTURES))}"
        ) from None
