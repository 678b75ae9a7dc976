"""The files of a model, for `worker.doctor`: found, whole, and of a kind that is served."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from engine.errors import ModelError, ModelNotFound
from jobs.doctor.disks import GIB
from jobs.doctor.findings import Finding, fault, warning, well

_ADVICE = "see the message, and docs/models.md for what is served"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")


def check_model(name: str) -> Iterator[Finding]:
    """Whether a worker would find the files of a model; nothing is downloaded or converted."""
    is_offline = bool(os.environ.get("HF_HUB_OFFLINE"))
    os.environ["HF_HUB_OFFLINE"] = "1"  # before the hub's client is imported
    from engine.loading.alias import ALIASES, find_alias, meant_alias

    try:
        path = find_alias(name) if name in ALIASES else Path(name).expanduser()
        if path.is_file() and path.suffix.lower() == ".gguf":
            yield _gguf(path)
        else:
            yield _folder(name)
    except ModelNotFound as error:
        if _is_on_the_hub(error) and not is_offline:
            meant = meant_alias(name)
            yield warning(
                "model",
                f"{name} is not in the hub's cache on this machine"
                + (f"; did you mean {meant}?" if meant else ""),
                f"the first worker downloads it; `pagemill pull {name}` does so before. A private "
                "or gated model needs HF_TOKEN",
            )
            return
        yield fault("model", str(error), "check the name, or bring the files to this machine")
    except ModelError as error:
        yield fault("model", str(error), _ADVICE)
    except OSError as error:
        yield fault("model", f"{name} cannot be read: {error}", "change the permissions of it")


def _is_on_the_hub(error: BaseException) -> bool:
    """Whether only the hub could know of the model, and was not asked."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    causes = (error.__cause__, error.__cause__ and error.__cause__.__cause__)
    return any(isinstance(cause, LocalEntryNotFoundError) for cause in causes)


def _gguf(path: Path) -> Finding:
    from engine.loading.gguf_header import read_header, refuse_unsupported

    header = read_header(path)
    refuse_unsupported(header, path)
    return well(
        "model",
        f"{path}: GGUF, {header.architecture}, {len(header.tensors)} tensors, "
        f"{path.stat().st_size / GIB:.2f} GiB",
    )


def _folder(name: str) -> Finding:
    from engine.loading.checkpoint import read_tensors, weight_files
    from engine.loading.resolve import resolve_model
    from engine.models.read_config import read_model_config

    files = resolve_model(name)
    weights = weight_files(files.path)
    tensors = sum(1 for _ in read_tensors(weights))
    config = read_model_config(files.path)
    if not any((files.path / tokenizer).is_file() for tokenizer in _TOKENIZERS):
        return fault(
            "model",
            f"{files.path} has no tokenizer ({', '.join(_TOKENIZERS)})",
            "copy the tokenizer's files of the model there",
        )
    size = sum(path.stat().st_size for path in weights)
    return well(
        "model",
        f"{files.path}: safetensors, {tensors} tensors in {len(weights)} files, "
        f"{config.num_layers} layers, {size / GIB:.2f} GiB",
    )
