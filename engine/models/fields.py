"""Reading typed fields of a model's JSON files, with errors that name file and field."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
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
    except (ValueError, RecursionError) as error:
        raise BrokenModel(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BrokenModel(f"{path} holds a JSON {type(value).__name__}; it must be an object")
    return value


def shown(value: Any) -> str:
    """A JSON value as an error message shows it: on one line, cut where it is long."""
    return reprlib.repr(value)


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a JSON object.

    Attributes:
        values: the object; a missing field and one that is null are two things.
        path: the object's file.
        defaults: what missing fields mean.
    """

    values: Mapping[str, Any]
    path: Path
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def get(self, name: str) -> Any:
        """The field as it is, else its default, else None."""
        return self.values.get(name, self.defaults.get(name))

    def read(self, name: str, kind: type[T]) -> T:
        """A field of the wanted type; an integer is also a float, and a float is finite.

        Raises:
            BrokenModel: the field is missing and has no default, is null or of another type.
        """
        if name not in self.values and name not in self.defaults:
            raise BrokenModel(f"{self.path}: the field {name} is missing")
        value = self.get(name)
        if kind is float and type(value) is int:
            value = _to_float(value)
        if type(value) is not kind:
            raise BrokenModel(
                f"{self.path}: {name} is {shown(value)}; it must be of type {kind.__name__}"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise BrokenModel(f"{self.path}: {name} is {value}; it must be a finite number")
        return value

    def read_nullable(self, name: str, kind: type[T]) -> T | None:
        """A field of the wanted type; None where it is null, or missing without a default."""
        return None if self.get(name) is None else self.read(name, kind)


def _to_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
