"""Reading typed fields of a model's JSON files, with errors that name file and field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from engine.errors import BrokenModel

T = TypeVar("T")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; BrokenModel where there is none."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise BrokenModel(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BrokenModel(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BrokenModel(f"{path} holds a JSON {type(value).__name__}; it must be an object")
    return value


def read_field(
    raw: Mapping[str, Any], name: str, kind: type[T], path: Path, default: T | None = None
) -> T:
    """A field of the wanted type; null counts as absent, and an integer is also a float."""
    value = raw.get(name)
    if value is None:
        if default is None:
            raise BrokenModel(f"{path}: the field {name} is missing")
        return default
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise BrokenModel(f"{path}: {name} is {value!r}; it must be of type {kind.__name__}")
    return value
