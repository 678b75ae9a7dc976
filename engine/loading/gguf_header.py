"""What a GGUF file says about itself, and whether converting it would keep its meaning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import BrokenModel, UnsupportedModel

if TYPE_CHECKING:
    from engine.loading.gguf_reader import QuickReader

_ELSEWHERE = "use the model's original safetensors checkpoint"
# llama.cpp's names of architectures, each with the tensors it has beside those of all.
_TENSORS = {
    "llama": "",  # Mistral too
    "qwen2": r"|blk\.\d+\.(attn_q|attn_k|attn_v)\.bias",
    "qwen3": r"|blk\.\d+\.(attn_q_norm|attn_k_norm)\.weight",
}
_COMMON_TENSORS = (
    r"(token_embd|output_norm|output"
    r"|blk\.\d+\.(attn_norm|attn_q|attn_k|attn_v|attn_output|ffn_norm|ffn_gate|ffn_up|ffn_down)"
    r")\.weight"
)
# Parameters that the conversion keeps, or that `refuse_unsupported` looks at. Any other one may
# change what is computed.
_KNOWN = {
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "vocab_size",
}
# Parameters that ask for nothing where they have this value.
_HARMLESS = {
    "attention.causal": True,
    "expert_count": 0,
    "expert_used_count": 0,
    "rope.scaling.type": "none",
    "tensor_data_layout": "Meta AI original pth",
}


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Metadata of a GGUF file.

    Attributes:
        reader: of the whole file; its tensors are memory-mapped.
        parameters: those of the architecture, without its name before them.
        splits: files that the model was cut into.
        end_token_ids: the ids at which llama.cpp stops: end of sequence, turn and message.
    """

    reader: QuickReader
    architecture: str
    parameters: Mapping[str, Any]
    splits: int
    tensors: tuple[str, ...]
    end_token_ids: tuple[int, ...]

    @property
    def head_dim(self) -> int | None:
        """The width of a head, None where it follows from the other sizes."""
        return self.parameters.get("attention.key_length")


def read_header(path: Path) -> GgufHeader:
    """Read the metadata; BrokenModel where the file is not a whole GGUF file."""
    from engine.loading.gguf_reader import QuickReader

    try:
        reader = QuickReader(path)
        architecture = _value(reader, "general.architecture")
        names = ("eos", "eot", "eom")
        ends = {_value(reader, f"tokenizer.ggml.{name}_token_id") for name in names}
        prefix = f"{architecture}."
        return GgufHeader(
            reader=reader,
            architecture=architecture,
            parameters={
                key.removeprefix(prefix): _value(reader, key)
                for key in reader.fields
                if key.startswith(prefix)
            },
            splits=_value(reader, "split.count") or 1,
            tensors=tuple(tensor.name for tensor in reader.tensors),
            end_token_ids=tuple(sorted(ends - {None})),
        )
    except Exception as error:  # the reader raises whatever its parsing meets
        raise BrokenModel(f"{path} is not a whole GGUF file: {error}") from error


def refuse_unsupported(header: GgufHeader, path: Path) -> None:
    """Refuse what transformers' reader lacks, or would drop without a word."""
    if header.architecture not in _TENSORS:
        raise UnsupportedModel(
            f"{path} holds the architecture {header.architecture!r}; supported in GGUF files are "
            f"{', '.join(_TENSORS)}"
        )
    if header.splits > 1:
        raise UnsupportedModel(
            f"{path} is one of {header.splits} parts; join them with llama-gguf-split --merge"
        )
    scaling = header.parameters.get("rope.scaling.type", "none")
    if scaling != "none" or "rope_freqs.weight" in header.tensors:
        raise UnsupportedModel(
            f"{path} scales its rotary embedding, which is not read from GGUF files; {_ELSEWHERE}"
        )
    for name, value in header.parameters.items():
        if name not in _KNOWN and value != _HARMLESS.get(name):
            raise UnsupportedModel(
                f"{path} sets {header.architecture}.{name} to {value!r:.60}, which is not read "
                f"from GGUF files; {_ELSEWHERE}"
            )
    _refuse_uneven_heads(header, path)
    for name in header.tensors:
        if not re.fullmatch(_COMMON_TENSORS + _TENSORS[header.architecture], name):
            raise UnsupportedModel(
                f"{path} holds the tensor {name}, which a plain {header.architecture} model does "
                f"not have; {_ELSEWHERE}"
            )


def _refuse_uneven_heads(header: GgufHeader, path: Path) -> None:
    """Refuse heads whose values are of another width, or that RoPE turns in part only."""
    parameters = header.parameters
    try:
        share = parameters["embedding_length"] // parameters["attention.head_count"]
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise BrokenModel(f"{path} does not say how wide its attention heads are") from error
    turned = parameters.get("rope.dimension_count", header.head_dim or share)
    width = header.head_dim or (turned if header.architecture == "llama" else share)
    if header.architecture == "qwen2" and width != share:
        raise UnsupportedModel(
            f"{path} has heads of {width} numbers where a qwen2 model has {share}; {_ELSEWHERE}"
        )
    values = parameters.get("attention.value_length", width)
    if not turned == width == values:
        raise UnsupportedModel(
            f"{path} has heads of {width} numbers, of which RoPE turns {turned}, and values of "
            f"{values}; only equal ones are supported"
        )


def _value(reader: Any, key: str) -> Any:
    field = reader.get_field(key)
    return None if field is None else field.contents()
