"""Find the files of a model that a person named."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from engine.errors import BrokenModel, ModelNotFound, UnsupportedModel
from engine.loading.alias import ALIASES, find_alias, meant_alias
from engine.loading.digest import folder_digest
from engine.loading.gguf import convert_gguf, gguf_digest
from engine.loading.hub import download

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model's folder: `config.json`, safetensors weights and tokenizer files.

    Attributes:
        name: what the person called it.
        revision: identity of the content, the same on every host with the same files.
    """

    path: Path
    name: str
    revision: str


def resolve_model(name: str) -> ModelFiles:
    """Find a model's files, downloading or converting them where needed.

    Args:
        name: an alias (`smollm2-135m`), a folder in the Hugging Face layout, a `.gguf` file
            or a hub id; an existing path wins over a hub id of the same spelling.

    Raises:
        ModelNotFound: nothing of that name is here or on the hub.
        UnsupportedModel: it is there, in a format that pagemill does not read.
        BrokenModel: a GGUF file is damaged.
    """
    if name in ALIASES:
        return _resolve_gguf(find_alias(name), name)
    path = Path(name).expanduser()
    if path.is_dir():
        _check_folder(path, f"the folder {name}")
        return ModelFiles(path, name, folder_digest(path))
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise UnsupportedModel(
                f"{name} is a file that pagemill cannot read as a model; name a .gguf file, or "
                "the folder that holds config.json and the .safetensors files"
            )
        return _resolve_gguf(path, name)
    if _looks_like_path(name):
        raise ModelNotFound(
            f"{name} looks like a path, but there is no such file or folder (seen from "
            f"{Path.cwd()})"
        )
    if not _HUB_ID.fullmatch(name):
        raise ModelNotFound(
            f"{name!r} is no existing path and cannot be a Hugging Face id (owner/name)"
        )
    try:
        folder, commit = download(name)
    except ModelNotFound as error:
        if "/" in name:
            raise
        if meant := meant_alias(name):
            raise ModelNotFound(f"{error}; did you mean {meant}?") from error
        raise ModelNotFound(f"{error} (known aliases: {', '.join(ALIASES)})") from error
    _check_folder(folder, f"the hub repository {name}")
    return ModelFiles(folder, name, commit)


def _resolve_gguf(path: Path, name: str) -> ModelFiles:
    digest = gguf_digest(path)
    return ModelFiles(convert_gguf(path, digest), name, digest)


def _looks_like_path(name: str) -> bool:
    return (
        name.startswith(("/", ".", "~"))
        or name.endswith("/")
        or "\\" in name
        or name.count("/") > 1
        or name.lower().endswith((".gguf", ".safetensors", ".bin"))
    )


def _check_folder(folder: Path, what: str) -> None:
    """Refuse early what could not be loaded, saying what is there instead."""
    has_config = (folder / "config.json").is_file()
    if not has_config and (folder / "adapter_config.json").is_file():
        raise UnsupportedModel(
            f"{what} is a LoRA adapter; merge it into its base model and name the merged folder"
        )
    if any(folder.glob("*.safetensors")):
        if not has_config:
            raise BrokenModel(f"{what} has weights but no config.json")
        return
    if ggufs := sorted(folder.glob("*.gguf")):
        raise UnsupportedModel(f"{what} holds GGUF files; name one of them, such as {ggufs[0]}")
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth")):
        raise UnsupportedModel(
            f"{what} has only pickle weights (.bin, .pt), which are refused because loading "
            "them can run any code; convert them to safetensors"
        )
    if not has_config:
        raise ModelNotFound(f"{what} holds no model: there is no config.json in it")
    raise BrokenModel(f"{what} has a config.json but no .safetensors weights")
