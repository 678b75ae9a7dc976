"""GGUF files: converted once to a folder in the Hugging Face layout.

A GGUF file holds weights in llama.cpp's quantized formats. They are expanded to float32,
which keeps every value exactly, and written with the tokenizer to the user's cache.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.errors import BrokenModel, ModelError, UnsupportedModel
from engine.loading.cache import cache_folder
from engine.loading.digest import file_digest

logger = logging.getLogger("pagemill.engine")

# Part of the cache's key: raise it when the converted files change.
_FORMAT = "1"


def gguf_digest(path: Path) -> str:
    """Identity of a GGUF file's content."""
    return file_digest(path)


def convert_gguf(path: Path, digest: str) -> Path:
    """The folder with the converted model; made where it is not there yet.

    Two processes may convert at once: each works in a folder of its own, and the first
    rename wins.

    Raises:
        UnsupportedModel: the file holds a variant that the conversion would get wrong.
        BrokenModel: the file is damaged.
    """
    target = cache_folder() / "models" / f"{path.stem}-{digest[:16]}-f{_FORMAT}"
    if (target / "config.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    logger.info("converting %s to safetensors in %s (once; takes a while)", path, target)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _refuse_unsupported(path)
        _convert(path, work)
        try:
            os.rename(work, target)
        except OSError:
            if not (target / "config.json").is_file():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _refuse_unsupported(path: Path) -> None:
    """Refuse what transformers' reader would drop without a word."""
    from gguf import GGUFReader

    try:
        reader = GGUFReader(path)
        architecture = _text(reader, "general.architecture")
        scaling = _text(reader, "llama.rope.scaling.type")
        has_experts = reader.get_field("llama.expert_count") is not None
        tensors = {tensor.name for tensor in reader.tensors}
    except Exception as error:
        raise BrokenModel(f"{path} is not a whole GGUF file: {error}") from error
    if architecture != "llama" or has_experts:
        kind = f"{architecture} with experts" if has_experts else architecture
        raise UnsupportedModel(
            f"{path} holds the architecture {kind}; supported in GGUF files is llama"
        )
    if scaling not in (None, "none") or "rope_freqs.weight" in tensors:
        raise UnsupportedModel(
            f"{path} scales its rotary embedding, which is not read from GGUF files; use the "
            "model's original safetensors checkpoint"
        )


def _text(reader: Any, key: str) -> str | None:
    field = reader.get_field(key)
    return None if field is None else str(field.contents())


def _convert(path: Path, folder: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with _quiet_transformers():
        try:
            where = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
            model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
            tokenizer = AutoTokenizer.from_pretrained(**where)
        except ModelError:
            raise
        except Exception as error:
            raise BrokenModel(f"{path} cannot be converted: {error}") from error
        tokenizer.save_pretrained(folder)
        model.generation_config.save_pretrained(folder)
    # save_pretrained refuses a model that came from GGUF, so its parts are written here.
    config = model.config.to_dict()
    del config["quantization_config"]
    config["architectures"] = [type(model).__name__]
    weights = {
        name: tensor.contiguous()
        for name, tensor in model.state_dict().items()
        if not (name == "lm_head.weight" and config["tie_word_embeddings"])
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """No progress bars and no advice on standard error."""
    from functools import partial

    from transformers import modeling_gguf_pytorch_utils as reader
    from transformers.utils import logging as hf_logging

    bars, verbosity = hf_logging.is_progress_bar_enabled(), hf_logging.get_verbosity()
    # The reader's own bar listens to no setting.
    tqdm = reader.tqdm
    reader.tqdm = partial(tqdm, disable=True)
    hf_logging.disable_progress_bar()
    hf_logging.set_verbosity_error()
    try:
        yield
    finally:
        reader.tqdm = tqdm
        hf_logging.set_verbosity(verbosity)
        if bars:
            hf_logging.enable_progress_bar()
