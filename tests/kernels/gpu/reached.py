"""What code a launch function comes to, followed by the names that it uses."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from types import CodeType, ModuleType
from typing import Any

import kernels.gpu
from kernels.gpu.operation import Operation

PACKAGE = kernels.gpu.__name__


def kernels_of_package() -> dict[str, Any]:
    """All functions that Triton compiles, by file and name."""
    found = {}
    for info in pkgutil.iter_modules(kernels.gpu.__path__):
        module = importlib.import_module(f"{PACKAGE}.{info.name}")
        for value in vars(module).values():
            if is_triton(value) and value.fn.__module__ == module.__name__:
                found[f"{info.name}.{value.fn.__name__}"] = value
    return found


def is_triton(value: Any) -> bool:
    """Whether it is a function of a kernel, compiled or interpreted."""
    return type(value).__module__.startswith("triton.runtime") and hasattr(value, "fn")


def launched_by(operation: Operation) -> dict[str, Any]:
    """The kernels that its launch function names itself, or by a function of the host."""
    return {v.fn.__name__: v for v in _reached(operation.launch, into_triton=False) if is_triton(v)}


def reached_by(operation: Operation) -> set[str]:
    """All functions of kernels that it comes to, as `kernels_of_package` calls them."""
    return {
        f"{value.fn.__module__.removeprefix(PACKAGE + '.')}.{value.fn.__name__}"
        for value in _reached(operation.launch, into_triton=True)
        if is_triton(value)
    }


def _reached(start: Callable[..., Any], *, into_triton: bool) -> list[Any]:
    found: list[Any] = [start]
    for value in found:  # which grows
        if is_triton(value) and not into_triton:
            continue
        for used in _used(value.fn if is_triton(value) else value):
            if not any(used is known for known in found):
                found.append(used)
    return found


def _used(function: Any) -> Iterator[Any]:
    names, scope = set(_names(function.__code__)), function.__globals__
    values = [scope[name] for name in names if name in scope]
    for module in [value for value in values if isinstance(value, ModuleType)]:
        if module.__name__.startswith(PACKAGE):
            values += [getattr(module, name) for name in names if hasattr(module, name)]
    for value in values:
        if isinstance(value, Operation):
            yield value.launch
        elif is_triton(value):
            yield value
        elif callable(value) and str(getattr(value, "__module__", "")).startswith(PACKAGE):
            inner = getattr(value, "__wrapped__", value)
            if hasattr(inner, "__code__"):
                yield inner


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
