"""What is added to the logits of rows, whatever their tokens are, kept on the device."""

from __future__ import annotations

import torch

from engine.logit_rules import TokenBias
from engine.slot_cache import SlotCache
from kernels.host_tensors import floats, integers
from kernels.sampling import LogitsProcessor
from kernels.token_bias import add_token_bias, write_token_bias


class BiasTable:
    """A table of biases; rows that ask for the same share a slot."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._slots: SlotCache[TokenBias] = SlotCache()
        self._table: torch.Tensor | None = None  # [slots, vocab_size], float32
        self.reserve = self._slots.reserve

    def processor(self, biased: list[tuple[int, TokenBias]]) -> LogitsProcessor:
        try:
            slots, new = self._slots.place(bias for _, bias in biased)
            table = self._fill(new)
        except BaseException:
            self._slots.clear()
            raise
        rows = integers([row for row, _ in biased], self._device)
        places = integers(slots, self._device)
        return lambda scores: add_token_bias(scores, rows, table, places)

    def _fill(self, new: dict[TokenBias, int]) -> torch.Tensor:
        if self._table is None or len(self._table) != self._slots.size:
            self._table = None  # its memory is free before more is taken
            self._table = torch.empty(
                self._slots.size, self._vocab_size, dtype=torch.float32, device=self._device
            )
        if new:
            entries: list[int] = []
            values: list[float] = []
            for bias, slot in new.items():
                first = slot * self._vocab_size
                entries.extend(first + token for token in bias.token_ids)
                values.extend(bias.values)
            write_token_bias(
                self._table,
                integers(list(new.values()), self._device),
                floats([bias.rest for bias in new], self._device),
                integers(entries, self._device),
                floats(values, self._device),
            )
        return self._table
