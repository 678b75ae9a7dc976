"""Reading the Dockerfile and the compose files as Docker does, as far as ours use it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker"

_VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)(?:(:-|:\?)([^}]*))?\}|(\w+))")


@dataclass
class Stage:
    """One stage of a Dockerfile, with what it has from those that it is built upon."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, name: str) -> list[str]:
        return [text for found, text in self.instructions if found == name]

    def last(self, name: str) -> str:
        return self.all(name)[-1]

    def words(self, name: str) -> list[str]:
        """The last instruction of that name, which is in the exec form."""
        words: list[str] = json.loads(self.last(name))
        return words

    @property
    def environment(self) -> dict[str, str]:
        pairs = [pair for text in self.all("ENV") for pair in shlex.split(text)]
        return dict(pair.split("=", 1) for pair in pairs)

    @property
    def healthcheck(self) -> list[str]:
        words: list[str] = json.loads(self.last("HEALTHCHECK").split(" CMD ", 1)[1])
        return words


def dockerfile() -> dict[str, Stage]:
    """The stages, by name; the base of an external image is that image."""
    text = re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.MULTILINE)
    text = re.sub(r"\s*\\\n\s*", " ", text)
    stages: dict[str, Stage] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, rest = line.split(None, 1)
        if name == "FROM":
            base, _, stage = rest.split()
            before = stages[base].instructions if base in stages else []
            current = stages[stage] = Stage(stage, base, list(before))
        else:
            current.instructions.append((name, rest))
    return stages


def compose(*files: str) -> dict[str, Any]:
    """The compose file, or several of them put together, with variables as they stand."""
    merged: dict[str, Any] = {}
    for name in files or ("compose.yaml",):
        merged = _merge(merged, yaml.safe_load((FOLDER / name).read_text()))
    return merged


def _merge(base: Any, over: Any) -> Any:
    if isinstance(base, dict) and isinstance(over, dict):
        return base | {key: _merge(base.get(key), value) for key, value in over.items()}
    return over


def env_example() -> dict[str, str]:
    lines = (FOLDER / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def variables(value: Any) -> dict[str, str]:
    """Variables that a part of a compose file names, and what each says if it is not set."""
    return {
        match[2] or match[5]: match[3] or ""
        for match in _VARIABLE.finditer(json.dumps(value))
        if not match[1]
    }


def interpolated(value: Any, env: Mapping[str, str]) -> Any:
    """The value with variables filled in.

    Raises:
        KeyError: one that is needed is not set; with what is said then.
    """
    if isinstance(value, dict):
        return {key: interpolated(item, env) for key, item in value.items()}
    if isinstance(value, list):
        return [interpolated(item, env) for item in value]
    if not isinstance(value, str):
        return value

    def fill(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        found = env.get(match[2] or match[5], "")
        if match[3] == ":?" and not found:
            raise KeyError(match[4])
        return found or (match[4] or "" if match[3] == ":-" else "")

    return _VARIABLE.sub(fill, value)


def seconds(duration: str) -> float:
    """`2m` is 120."""
    units = {"s": 1, "m": 60, "h": 3600}
    return sum(int(n) * units[unit] for n, unit in re.findall(r"(\d+)([smh])", duration))
