"""GGUF files: converted once to a folder in the Hugging Face layout.

A GGUF file holds weights in llama.cpp's quantized formats. They are expanded to float32,
which keeps every value exactly, and written with the tokenizer to the user's cache.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.errors import BrokenModel
from engine.loading.cache import cache_folder
from engine.loading.digest import file_digest
from engine.loading.gguf_header import GgufHeader, read_header, refuse_unsupported
from engine.startup import tell

logger = logging.getLogger("pagemill.engine")

# Part of the cache's key: raise it when the converted files change.
_FORMAT = "2"
_WORK_PREFIX = ".converting-"
_LEFTOVER_SECONDS = 24 * 3600


def gguf_digest(path: Path) -> str:
    """Identity of a GGUF file's content."""
    return file_digest(path)


def converted_folder(path: Path, digest: str) -> Path:
    """Where the converted model is, or will be; it is whole once it has a `config.json`."""
    return cache_folder() / "models" / f"{path.stem}-{digest[:16]}-f{_FORMAT}"


def convert_gguf(path: Path, digest: str) -> Path:
    """The folder with the converted model; made where it is not there yet.

    Two processes may convert at once: each works in a folder of its own, and the first
    rename wins.

    Raises:
        UnsupportedModel: the file holds a variant that the conversion would get wrong.
        BrokenModel: the file is damaged.
    """
    target = converted_folder(path, digest)
    if (target / "config.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    logger.info("converting %s to safetensors in %s (once)", path, target)
    tell("converting the model")
    began = time.monotonic()
    _remove_leftovers(target.parent)
    work = target.parent / f"{_WORK_PREFIX}{uuid.uuid4().hex}"
    work.mkdir()
    try:
        header = read_header(path)
        refuse_unsupported(header, path)
        _convert(path, work, header)
        _sync(work)
        try:
            os.rename(work, target)
        except OSError:
            if not (target / "config.json").is_file():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    logger.info("converted in %.1f s", time.monotonic() - began)
    return target


def _remove_leftovers(folder: Path) -> None:
    """Remove what conversions left that were killed; a day old, so that none still runs."""
    for work in folder.glob(f"{_WORK_PREFIX}*"):
        if time.time() - work.stat().st_mtime > _LEFTOVER_SECONDS:
            shutil.rmtree(work, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Have all files on the disk before the rename makes them count as whole."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _convert(path: Path, folder: Path, header: GgufHeader) -> None:
    """Write the model to a folder: configuration and tokenizer through transformers."""
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    from engine.loading.gguf_weights import write_weights

    where = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    # transformers reads the width of heads from no file of Qwen3.
    heads = {} if header.head_dim is None else {"head_dim": header.head_dim}
    try:
        with _quiet_transformers(header):
            config = AutoConfig.from_pretrained(
                **where, **heads, dtype="float32", trust_remote_code=False
            )
            tokenizer = AutoTokenizer.from_pretrained(**where, trust_remote_code=False)
            config.architectures = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type]]
            tokenizer.save_pretrained(folder)
            generation = GenerationConfig.from_model_config(config)
            if header.end_token_ids:
                generation.eos_token_id = list(header.end_token_ids)
            generation.save_pretrained(folder)
        settings = config.to_dict()
        (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n")
        write_weights(header, settings, folder / "model.safetensors", path)
    except BrokenModel:
        raise
    except Exception as error:
        raise BrokenModel(f"{path} cannot be converted: {error}") from error


@contextmanager
def _quiet_transformers(header: GgufHeader) -> Iterator[None]:
    """No progress bars and no advice on standard error; the file is not read again."""
    import gguf
    from transformers.utils import logging as hf_logging

    bars, verbosity = hf_logging.is_progress_bar_enabled(), hf_logging.get_verbosity()
    reader = gguf.GGUFReader
    gguf.GGUFReader = lambda *_: header.reader
    hf_logging.disable_progress_bar()
    hf_logging.set_verbosity_error()
    try:
        yield
    finally:
        gguf.GGUFReader = reader
        hf_logging.set_verbosity(verbosity)
        if bars:
            hf_logging.enable_progress_bar()
