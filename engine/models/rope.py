"""Frequencies of the rotary position embedding in the variants that Llama models use."""

from __future__ import annotations

import math

import torch

from engine.models.config import RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> torch.Tensor:
    """Radians a token for each pair of dimensions, fastest first: [head_dim / 2], float32.

    `linear` is position interpolation (Chen et al., 2023, arXiv:2306.15595); `llama3` is the
    scaling by wavelength that came with Llama 3.1 (Meta, 2024, arXiv:2407.21783).
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    if rope.type == "linear":
        return frequencies / rope.factor
    if rope.type == "llama3":
        return _scale_by_wavelength(frequencies, rope)
    return frequencies


def _scale_by_wavelength(frequencies: torch.Tensor, rope: RopeConfig) -> torch.Tensor:
    """Keep fast frequencies, divide slow ones by the factor, blend in between."""
    wavelengths = 2 * math.pi / frequencies
    longest = rope.original_max_len / rope.low_freq_factor
    shortest = rope.original_max_len / rope.high_freq_factor
    turns = rope.original_max_len / wavelengths
    keep = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    slowed = frequencies / rope.factor
    blended = (1 - keep) * frequencies / rope.factor + keep * frequencies
    scaled = torch.where(wavelengths > longest, slowed, frequencies)
    between = (wavelengths >= shortest) & (wavelengths <= longest)
    return torch.where(between, blended, scaled)
