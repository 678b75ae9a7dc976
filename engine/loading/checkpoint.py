"""The tensors of a folder's safetensors files, memory-mapped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from engine.errors import BrokenModel
from engine.models.fields import Fields, read_json

_INDEX = "model.safetensors.index.json"
_WHOLE = "model.safetensors"


def weight_files(folder: Path) -> list[Path]:
    """The files that hold a model's weights: those of the index, else the only one.

    Raises:
        BrokenModel: a file of the index is missing, or it is not clear which to read.
    """
    index = folder / _INDEX
    if index.is_file():
        weight_map = Fields(read_json(index), index).read("weight_map", dict)
        files = [folder / str(name) for name in sorted(set(map(str, weight_map.values())))]
        for path in files:
            if path.parent != folder or not path.is_file():
                raise BrokenModel(f"{index} names {path.name}, which is not in {folder}")
        return files
    if (folder / _WHOLE).is_file():
        return [folder / _WHOLE]
    found = sorted(folder.glob("*.safetensors"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise BrokenModel(f"{folder} needs {_WHOLE} or {_INDEX}; safetensors files there: {names}")
    return found


def read_tensors(files: list[Path]) -> Iterator[tuple[Path, str, Any]]:
    """Each tensor's file, name and slice; `slice.get_shape()` reads no weights.

    Raises:
        BrokenModel: a file is damaged.
    """
    for path in files:
        try:
            with safe_open(path, framework="pt", device="cpu") as opened:
                for name in opened.keys():  # noqa: SIM118 - it is no mapping
                    yield path, name, opened.get_slice(name)
        except (SafetensorError, OSError) as error:
            raise BrokenModel(f"{path} is not a whole safetensors file: {error}") from error
