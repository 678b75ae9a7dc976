"""How fast this machine could answer a workload if it did nothing but multiply matrices.

    python -m benchmarks.ceiling smollm2-135m [--threads 2]

Measures the float32 rate of the model's own linear layers at 256 rows, each by the best of the
ways that torch has on a CPU: plain, packed for MKL, packed for oneDNN. The rest (attention,
normalization, sampling, traffic of the KV cache) is taken to cost nothing, so that no float32
engine that multiplies by these libraries reaches the bound.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from benchmarks.workload import Workload

if TYPE_CHECKING:
    from engine.models.config import ModelConfig

ROWS = 256
SECONDS_A_WAY = 0.25


@dataclass(frozen=True)
class LinearLayers:
    """The linear layers of a model as (output, input) widths.

    Attributes:
        layer: those of one decoder layer, fused where they share their input.
        num_layers: how often they are there.
        head: the output projection over the vocabulary.
    """

    layer: tuple[tuple[int, int], ...]
    num_layers: int
    head: tuple[int, int]

    @classmethod
    def of(cls, config: ModelConfig) -> LinearLayers:
        hidden, width = config.hidden_size, config.num_heads * config.head_dim
        qkv = width + 2 * config.num_kv_heads * config.head_dim
        layer = (
            (qkv, hidden),
            (hidden, width),
            (2 * config.intermediate_size, hidden),
            (hidden, config.intermediate_size),
        )
        return cls(layer, config.num_layers, (config.vocab_size, hidden))

    @property
    def layer_flops(self) -> int:
        """Floating-point operations of all layers for one token."""
        return self.num_layers * sum(2 * out * width for out, width in self.layer)

    @property
    def head_flops(self) -> int:
        """Those of the head for one token whose logits are needed."""
        return 2 * self.head[0] * self.head[1]


@dataclass(frozen=True)
class Rates:
    """Operations a token takes, and how many a second the machine does: the layers, the head."""

    layer_flops: float
    head_flops: float
    layer_flops_per_second: float
    head_flops_per_second: float

    def bound_seconds(self, workload: Workload) -> float:
        """Every distinct prompt token goes through the layers once; every generated token goes
        through the layers and the head."""
        generated = workload.generated_tokens
        through_layers = workload.unique_prompt_tokens + generated
        return (
            through_layers * self.layer_flops / self.layer_flops_per_second
            + generated * self.head_flops / self.head_flops_per_second
        )


def measure(layers: LinearLayers, seconds_a_way: float = SECONDS_A_WAY) -> Rates:
    """Time the layers in this process, with the threads that torch has."""

    def seconds_a_row(shape: tuple[int, int]) -> float:
        return min(_best_time(product, seconds_a_way) for product in _products(*shape)) / ROWS

    per_layer = sum(map(seconds_a_row, layers.layer))
    return Rates(
        layers.layer_flops,
        layers.head_flops,
        layers.layer_flops / (layers.num_layers * per_layer),
        layers.head_flops / seconds_a_row(layers.head),
    )


def _products(out: int, width: int) -> Iterator[Callable[[], object]]:
    """The same product in each of torch's ways."""
    import torch

    x, weight = torch.randn(ROWS, width), torch.randn(out, width)
    yield lambda: torch.nn.functional.linear(x, weight)
    if torch.backends.mkl.is_available():
        mkl = torch.ops.mkl
        packed = mkl._mkl_reorder_linear_weight(weight, ROWS)
        yield lambda: mkl._mkl_linear(x, packed, weight, None, ROWS)
    if torch.backends.mkldnn.is_available():
        reordered = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
        pointwise = torch.ops.mkldnn._linear_pointwise
        yield lambda: pointwise(x, reordered, None, "none", [], "")


def _best_time(product: Callable[[], object], seconds: float) -> float:
    """Shortest of repeated runs: other work on the machine only ever adds time."""
    product()
    best, until = float("inf"), time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        product()
        best = min(best, time.perf_counter() - began)
    return best


def main() -> None:
    import torch

    from engine.loading import resolve_model
    from engine.models.read_config import read_model_config

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = read_model_config(resolve_model(options.model).path)
    with torch.inference_mode():
        print(json.dumps(asdict(measure(LinearLayers.of(config)))))


if __name__ == "__main__":
    main()
