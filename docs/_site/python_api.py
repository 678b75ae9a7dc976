"""The public names of the two packages, from their docstrings."""

from __future__ import annotations

import importlib
import inspect
from functools import cache
from typing import Any

PACKAGES = ("jobs", "engine")


@cache
def public(package: str) -> dict[str, str]:
    """The full name of what each public name stands for."""
    module = importlib.import_module(package)
    values = {name: getattr(module, name) for name in module.__all__}
    return {name: f"{v.__module__}.{v.__qualname__}" for name, v in values.items()}


def markdown(package: str) -> str:
    """All public names: functions, then classes in the package's order, then errors."""
    module = importlib.import_module(package)
    values = {name: getattr(module, name) for name in module.__all__}
    errors = {name for name, value in values.items() if _is_error(value)}
    parts = [_entry(package, name, value) for name, value in values.items() if name not in errors]
    parts.append("\n## Errors\n")
    parts += [_entry(package, name, values[name]) for name in values if name in errors]
    return "\n".join(parts)


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)


def _entry(package: str, name: str, value: Any) -> str:
    if not inspect.isclass(value):
        return f"```{{eval-rst}}\n.. autofunction:: {package}.{name}\n```\n"
    options = "   :show-inheritance:\n" if _is_error(value) else "   :members:\n"
    return f"```{{eval-rst}}\n.. autoclass:: {package}.{name}\n{options}```\n"
