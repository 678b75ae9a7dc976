"""What `jobs` and `engine` export: a change of it shows in public_names.txt.

`python -m tests.architecture.test_public_names` writes that file anew.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import pytest

import engine
import jobs

ROOT = Path(__file__).parents[2]
SNAPSHOT = Path(__file__).with_name("public_names.txt")
EXPORTING = (jobs, engine)


def described(module: ModuleType) -> list[str]:
    """A line for each name, and for each attribute and method of a class."""
    lines = []
    for name in sorted(module.__all__):
        lines += _lines(f"{module.__name__}.{name}", getattr(module, name))
    return lines


def _lines(name: str, value: Any) -> list[str]:
    if not inspect.isclass(value):
        return [f"{name}{_signature(value)}"]
    if issubclass(value, enum.Enum):
        return [f"{name} (enum): {', '.join(member.value for member in value)}"]
    bases = ", ".join(base.__name__ for base in value.__bases__)
    if issubclass(value, Exception):
        return [f"{name} (error): {bases}"]
    if dataclasses.is_dataclass(value):
        lines = [f"{name} (dataclass)"]
        for field in dataclasses.fields(value):
            has_default = field.default is not dataclasses.MISSING
            made = field.default_factory is not dataclasses.MISSING
            default = _default(field.default) if has_default else " = …" if made else ""
            lines.append(f"    {field.name}: {field.type}{default}")
    else:
        lines = [f"{name} (class){_signature(value)}"]
    for attribute, member in _members(value).items():
        if attribute.startswith("_") or attribute in getattr(value, "__dataclass_fields__", ()):
            continue
        if isinstance(member, property):
            lines.append(f"    {attribute} (property)")
        elif isinstance(member, classmethod):
            lines.append(f"    {attribute} (of the class){_signature(member.__func__)}")
        elif inspect.isfunction(member):
            lines.append(f"    {attribute}{_signature(member)}")
    return lines


def _members(kind: type) -> dict[str, Any]:
    """Of a class, and of those classes of ours that it is made of."""
    ours = [k for k in kind.__mro__ if k.__module__.startswith(("jobs.", "engine."))]
    return {name: member for k in ours for name, member in vars(k).items()}


def _default(value: Any) -> str:
    """Values that are the same wherever the tests run."""
    return f" = {value!r}" if isinstance(value, int | float | str | tuple | None) else " = …"


def _signature(function: Any) -> str:
    """A parameter a line, as they are written."""
    signature = inspect.signature(function)
    lines = []
    for parameter in signature.parameters.values():
        star = "*, " if parameter.kind is inspect.Parameter.KEYWORD_ONLY else ""
        kind = _written(parameter.annotation)
        default = _default(parameter.default) if parameter.default is not parameter.empty else ""
        lines.append(f"{star}{parameter.name}{f': {kind}' if kind else ''}{default}")
    returned = _written(signature.return_annotation)
    arrow = f" -> {returned}" if returned else ""
    if len(lines) <= 6:
        return f"({', '.join(lines)}){arrow}"
    return "(\n        " + "\n        ".join(lines) + f"\n    ){arrow}"


def _written(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def snapshot() -> str:
    return "".join(f"{line}\n" for module in EXPORTING for line in described(module))


def test_the_exported_names_are_those_that_were_agreed_upon() -> None:
    assert snapshot() == SNAPSHOT.read_text("utf-8"), (
        "The API of `jobs` or `engine` has changed. If that is meant, write the new one down: "
        "python -m tests.architecture.test_public_names"
    )


@pytest.mark.parametrize("module", EXPORTING, ids=lambda module: module.__name__)
def test_every_name_is_found_and_listed(module: ModuleType) -> None:
    assert sorted(module.__all__) == sorted(name for n in module._HOMES.values() for name in n)
    assert set(module.__all__) <= set(dir(module))
    for home, names in module._HOMES.items():
        for name in names:
            assert getattr(module, name) is getattr(importlib.import_module(home), name)
    with pytest.raises(AttributeError, match="has no attribute 'submitted'"):
        _ = module.submitted


@pytest.mark.parametrize("module", EXPORTING, ids=lambda module: module.__name__)
def test_every_name_says_what_it_is_for(module: ModuleType) -> None:
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) and issubclass(value, enum.Enum):
            continue  # whose members speak for themselves
        assert value.__doc__, name
        for attribute, member in vars(value).items() if inspect.isclass(value) else ():
            if inspect.isfunction(member) and module is jobs and not attribute.startswith("_"):
                assert member.__doc__, f"{name}.{attribute}"


def test_an_import_loads_nothing_until_a_name_is_used() -> None:
    code = (
        "import sys, jobs, engine\n"
        "ours = [m for m in sys.modules if m.partition('.')[0] in ('jobs', 'engine')]\n"
        "assert sorted(ours) == ['engine', 'jobs'], ours\n"
        "heavy = {'sqlalchemy', 'pyarrow', 'typer', 'rich', 'torch', 'typing_extensions'}\n"
        "assert not heavy & set(sys.modules)\n"
        "from jobs import submit, Job\n"
        "from engine import EngineConfig, Request, SamplingParams\n"
        "assert not {'torch', 'transformers', 'pandas', 'polars'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_python_has_the_options_of_the_command_line() -> None:
    from jobs.api.options import (
        EngineArguments,
        EvaluateArguments,
        RunArguments,
        SamplingArguments,
        SubmitArguments,
    )
    from jobs.cli.evaluation_options import EvaluationOptions
    from jobs.cli.options import EngineOptions, SubmitOptions
    from jobs.cli.sampling_options import SamplingOptions

    def names(kind: type) -> set[str]:
        return {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]

    sampling, submitting = (set(get_type_hints(k)) for k in (SamplingArguments, SubmitArguments))
    assert sampling == names(SamplingOptions)
    assert submitting == names(SubmitOptions) - {"file", "model"}
    assert set(get_type_hints(RunArguments)) - submitting == names(EngineOptions)
    assert list(inspect.signature(jobs.submit).parameters)[:3] == ["data", "model", "settings"]
    assert submitting < set(inspect.signature(jobs.submit).parameters)
    evaluating = inspect.signature(jobs.evaluate).parameters
    assert set(get_type_hints(EvaluateArguments)) < set(evaluating)
    plural = {"scorer": "scorers", "slice": "slices", "spec_file": "spec"}
    asked = {plural.get(name, name) for name in names(EvaluationOptions)}
    ours = {"name", "wait", "worker", "progress", "settings"}
    assert set(evaluating) - set(get_type_hints(EngineArguments)) == asked | ours


def test_type_checkers_see_all_of_it() -> None:
    """With what `make types` found out of the packages, which takes long."""
    example = Path(__file__).with_name("typed_example.py")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", str(example)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot(), "utf-8")
