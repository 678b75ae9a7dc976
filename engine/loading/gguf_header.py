"""What a GGUF file says about itself, and whether converting it would keep its meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import BrokenModel, UnsupportedModel

_TENSOR = re.compile(
    r"(token_embd|output_norm|output"
    r"|blk\.\d+\.(attn_norm|attn_q|attn_k|attn_v|attn_output|ffn_norm|ffn_gate|ffn_up|ffn_down)"
    r")\.weight"
)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Metadata of a GGUF file.

    Attributes:
        rope_scaling: kind of RoPE scaling, None where the file names none.
        splits: files that the model was cut into.
        end_token_ids: the ids at which llama.cpp stops: end of sequence, turn and message.
    """

    architecture: str
    rope_scaling: str | None
    splits: int
    tensors: tuple[str, ...]
    end_token_ids: tuple[int, ...]


def read_header(path: Path) -> GgufHeader:
    """Read the metadata; BrokenModel where the file is not a whole GGUF file."""
    from gguf import GGUFReader

    try:
        reader = GGUFReader(path)
        names = ("eos", "eot", "eom")
        ends = {_value(reader, f"tokenizer.ggml.{name}_token_id") for name in names}
        return GgufHeader(
            architecture=_value(reader, "general.architecture"),
            rope_scaling=_value(reader, "llama.rope.scaling.type"),
            splits=_value(reader, "split.count") or 1,
            tensors=tuple(tensor.name for tensor in reader.tensors),
            end_token_ids=tuple(sorted(ends - {None})),
        )
    except Exception as error:  # the reader raises whatever its parsing meets
        raise BrokenModel(f"{path} is not a whole GGUF file: {error}") from error


def refuse_unsupported(header: GgufHeader, path: Path) -> None:
    """Refuse what transformers' reader lacks, or would drop without a word."""
    if header.architecture != "llama":
        raise UnsupportedModel(
            f"{path} holds the architecture {header.architecture}; supported in GGUF files is llama"
        )
    if header.splits > 1:
        raise UnsupportedModel(
            f"{path} is one of {header.splits} parts; join them with llama-gguf-split --merge"
        )
    if header.rope_scaling not in (None, "none") or "rope_freqs.weight" in header.tensors:
        raise UnsupportedModel(
            f"{path} scales its rotary embedding, which is not read from GGUF files; use the "
            "model's original safetensors checkpoint"
        )
    for name in header.tensors:
        if not _TENSOR.fullmatch(name):
            raise UnsupportedModel(
                f"{path} holds the tensor {name}, which a plain Llama model does not have; use "
                "the model's original safetensors checkpoint"
            )


def _value(reader: Any, key: str) -> Any:
    field = reader.get_field(key)
    return None if field is None else field.contents()
