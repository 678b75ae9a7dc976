"""Drives a Runner without a scheduler: block tables are shuffled, sequences are scripted."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from engine.batch import Batch, ScheduledSequence
from engine.sampling_params import SamplingParams

if TYPE_CHECKING:
    from engine.runner import Runner

GREEDY = SamplingParams()


@dataclass
class ByHand:
    """A runner and the block tables of the sequences that were started on it."""

    runner: Runner
    seed: int = 0
    _free: list[int] = field(init=False)
    _tables: dict[str, tuple[int, ...]] = field(init=False, default_factory=dict)
    _steps: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._free = list(range(self.runner.kv_cache.num_blocks))
        random.Random(self.seed).shuffle(self._free)

    def part(
        self,
        name: str,
        tokens: list[int],
        start: int,
        end: int,
        *,
        samples: bool = True,
        params: SamplingParams = GREEDY,
        sample_index: int = 0,
    ) -> ScheduledSequence:
        """Compute `tokens[start:end]` of a sequence."""
        needed = -(-end // self.runner.kv_cache.block_size)
        table = self._tables.get(name, ())
        table += tuple(self._free.pop() for _ in range(needed - len(table)))
        self._tables[name] = table
        chunk = tuple(tokens[start:end])
        return ScheduledSequence(name, chunk, start, table, samples, params, sample_index)

    def free(self, name: str) -> None:
        """The blocks of a sequence are the first that the next one gets, as they are."""
        self._free.extend(self._tables.pop(name))

    def batch(self, *parts: ScheduledSequence) -> Batch:
        self._steps += 1
        return Batch(self._steps, parts)

    def generate(
        self, prompts: dict[str, list[int]], count: int, chunk: int
    ) -> dict[str, list[int]]:
        """Greedy answers; prompts in chunks, mixed with the decodes of those that are through."""
        tokens = {name: list(prompt) for name, prompt in prompts.items()}
        done = dict.fromkeys(prompts, 0)
        while parts := [
            self.part(
                name,
                sequence,
                done[name],
                min(done[name] + chunk, len(sequence)),
                samples=done[name] + chunk >= len(sequence),
            )
            for name, sequence in tokens.items()
            if len(sequence) < len(prompts[name]) + count
        ]:
            parts.sort(key=lambda part: len(part.token_ids))
            for part in parts:
                done[part.request_id] = part.end
            for sampled in self.runner.execute(self.batch(*parts)):
                tokens[sampled.request_id].append(sampled.token_id)
        return {name: sequence[len(prompts[name]) :] for name, sequence in tokens.items()}


def load_runner(
    folder: Path,
    *,
    num_blocks: int = 64,
    block_size: int = 16,
    kv_dtype: str = "float32",
    deterministic: bool = False,
) -> Runner:
    """A float32 runner on the CPU, its cache full of NaN."""
    import torch

    from engine.kv_cache import KVCache
    from engine.kv_format import choose_kv_format
    from engine.loading import load_model, resolve_model
    from engine.runner import Runner

    files = resolve_model(str(folder))
    loaded = load_model(files, "float32", "cpu", deterministic=deterministic)
    kv_format = choose_kv_format(kv_dtype, loaded.dtype, loaded.device)
    kv_cache = KVCache.create(loaded.config, num_blocks, block_size, kv_format, loaded.device)
    for layer in kv_cache.layers:
        layer.keys.fill_(torch.nan)
        layer.values.fill_(torch.nan)
    return Runner(loaded, kv_cache)
