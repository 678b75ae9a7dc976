"""Frequencies of the rotary position embedding in the variants that our families use."""

from __future__ import annotations

import math

import torch

from engine.models.config import RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> torch.Tensor:
    """Radians a token for each pair of dimensions, fastest first: [head_dim / 2], float32.

    `linear` is position interpolation (Chen et al., 2023, arXiv:2306.15595); `llama3` is the
    scaling by wavelength that came with Llama 3.1 (Meta, 2024, arXiv:2407.21783); `yarn` is
    that of Peng et al., 2023, arXiv:2309.00071.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    periods = rope.theta**exponents
    frequencies = 1.0 / periods
    match rope.type:
        case "linear":
            return frequencies / rope.factor
        case "llama3":
            return _scale_by_wavelength(frequencies, rope)
        case "yarn":
            keep = _kept_by_yarn(rope, head_dim)
            return 1.0 / (rope.factor * periods) * (1 - keep) + frequencies * keep
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


def _kept_by_yarn(rope: RopeConfig, head_dim: int) -> torch.Tensor:
    """How much of each frequency YaRN keeps: 1 for fast ones, 0 for slow ones, a ramp between."""

    def dimension_that_turns(times: float) -> float:
        wavelength = rope.original_max_len / (times * 2 * math.pi)
        return head_dim * math.log(wavelength) / (2 * math.log(rope.theta))

    low, high = dimension_that_turns(rope.beta_fast), dimension_that_turns(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001  # one step instead of a ramp
    ramp = (torch.arange(head_dim // 2, dtype=torch.float32) - low) / (high - low)
    return 1 - ramp.clamp(0, 1)
