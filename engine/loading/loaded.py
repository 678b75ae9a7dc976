"""A model that is ready to run."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.models.config import ModelConfig
from engine.models.decoder import Decoder


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Weights on a device, and what the rest of the engine must know of them.

    Attributes:
        eos_token_ids: every id that ends a text; empty where the model names none.
        dtype: of the weights, activations and KV cache.
    """

    model: Decoder
    config: ModelConfig
    eos_token_ids: frozenset[int]
    dtype: torch.dtype
    device: torch.device
