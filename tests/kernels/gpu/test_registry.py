"""No kernel without an operation, and no operation without a reference, a test and a caller.

The caller is the engine: a tiny model answers in it, with the kernels in the interpreter, and each
operation is called at least once.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.core import Engine
from engine.request import RequestOutput
from kernels.gpu import library
from kernels.gpu.operation import Operation
from kernels.gpu.operations import OPERATIONS
from tests.kernels.gpu.aot import table
from tests.kernels.gpu.engine_workload import engines, requests
from tests.kernels.gpu.reached import kernels_of_package, launched_by, reached_by
from tests.support.tiny_model import build_tiny_model

ROOT = Path(__file__).parents[3]
REGISTERED = pytest.mark.parametrize("name", OPERATIONS)
# These walk over the operations as well, and compare none with its reference.
GENERAL = {"test_aot.py", "test_interpreter.py", "test_operators.py", "test_registry.py"}


def test_every_kernel_belongs_to_an_operation() -> None:
    reached = set().union(*(reached_by(operation) for operation in OPERATIONS.values()))
    assert set(kernels_of_package()) - reached == set()


@REGISTERED
def test_its_kernels_are_compiled_ahead_of_time(name: str) -> None:
    kernels = launched_by(OPERATIONS[name])
    assert kernels
    in_table = {row.kernel.partition("#")[0] for row in table.load()}
    assert kernels.keys() <= in_table


@REGISTERED
def test_the_rest_of_the_package_finds_it(name: str) -> None:
    """By its name, in a file of `kernels/`, which has the reference."""
    texts = [path.read_text("utf-8") for path in (ROOT / "kernels").glob("*.py")]
    assert any(re.search(rf'find_gpu\(\s*"{name}"', text) for text in texts)


@REGISTERED
def test_a_test_compares_it_with_its_reference(name: str) -> None:
    """A file of tests that imports it and, of `kernels/` without the GPU, what it has to equal."""
    module = OPERATIONS[name].launch.__module__
    files = [path for path in Path(__file__).parent.glob("test_*.py") if path.name not in GENERAL]
    assert any(_compares(path, module, name) for path in files)


def _compares(path: Path, module: str, name: str) -> bool:
    imported = _imported(path)
    for origin, _ in list(imported):  # and what its helpers import
        helper = ROOT / f"{origin.replace('.', '/')}.py"
        if origin.startswith("tests.kernels.gpu.") and helper.is_file():
            imported |= _imported(helper)
    return (module, name) in imported and any(
        (origin == "kernels" or origin.startswith("kernels."))
        and not origin.startswith("kernels.gpu")
        for origin, _ in imported
    )


def _imported(path: Path) -> set[tuple[str, str]]:
    """The module and the name of each `from ... import`."""
    return {
        (node.module or "", alias.name)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@dataclass(frozen=True)
class Runs:
    """What two engines answered with and without the kernels, and how often each was called."""

    calls: Counter[str]
    answers: list[dict[str, RequestOutput]]
    expected: list[dict[str, RequestOutput]]
    swapped: int


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = build_tiny_model(tmp_path_factory.mktemp("tiny"))
    expected = [answers(engine) for engine in engines(folder)]
    calls: Counter[str] = Counter()
    call = Operation.__call__

    def counted(self: Operation, *arguments: Any) -> Any:
        calls[self.name] += 1
        return call(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(library.VARIANT_VARIABLE, "interpreter")
        patch.setattr(Operation, "__call__", counted)
        library.forget()
        found, swapped = [], 0
        try:
            for engine in engines(folder):
                found.append(answers(engine))
                swapped += engine.stats.swap_ins
        finally:
            patch.undo()
            library.forget()
    return Runs(calls, found, expected, swapped)


def answers(engine: Engine) -> dict[str, RequestOutput]:
    found = {output.request_id: output for output in engine.generate(requests())}
    assert all(output.error_code is None for output in found.values())
    return found


@REGISTERED
def test_the_engine_uses_it(name: str, runs: Runs) -> None:
    assert runs.calls[name] > 0


def test_the_engine_answers_with_them_as_without(runs: Runs) -> None:
    for found, expected in zip(runs.answers, runs.expected, strict=True):
        assert found.keys() == expected.keys()
        for name, output in found.items():
            assert output.token_ids == expected[name].token_ids, name
            assert [beam.token_ids for beam in output.beams] == [
                beam.token_ids for beam in expected[name].beams
            ]
            close(output.embedding, expected[name].embedding)
            close(*(o.score and o.score.token_logprobs for o in (output, expected[name])))
            close(*([t.logprob for t in o.logprobs or ()] for o in (output, expected[name])))


def close(found: Any, expected: Any) -> None:
    assert list(found or ()) == pytest.approx(list(expected or ()), rel=1e-3, abs=1e-4)


def test_the_engine_was_short_of_memory(runs: Runs) -> None:
    """Else nobody swapped."""
    assert runs.swapped > 0
