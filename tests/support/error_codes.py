"""The error codes that there are, found in the source where errors are made."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import worker.errors
from engine.errors import ROW_ERRORS
from jobs.errors import JobsError, RowError
from jobs.evaluation.runs import _CODES, _JOB_CODES
from jobs.gather import _STOPPED_MESSAGES
from tests.support.markdown_pages import ROOT

# What makes an error, and which of its arguments is the code.
_OF_A_ROW = {
    "RowError": 0, "RequestError": 0, "RowErrorInfo": 0, "GrammarRefusal": 0, "without_answer": 1,
}  # fmt: skip
_OF_A_JOB = {"store.fail_job": 1, "attempts._fail": 2}
_OF_AN_EVALUATION = {"CannotBeDone": 0, "store.fail_evaluation": 1}

# Of a caller of the engine that uses an id twice; a worker does not.
_NEVER_OF_A_ROW = {"duplicate_request"}
# Codes of errors that were made elsewhere, or of a grammar's matcher, which knows `ROW_ERRORS`.
_HANDED_ON = {
    "error.code", "value.code", "self.code", "output.error_code", "failed.code", "code",
    "stop_reason",
}  # fmt: skip


def row_codes() -> set[str]:
    """Of rows: refused at submit, or not answered."""
    return (_made(_OF_A_ROW) | ROW_ERRORS.keys() | _STOPPED_MESSAGES.keys()) - _NEVER_OF_A_ROW


def job_codes() -> set[str]:
    """Of jobs that failed as a whole."""
    return _made(_OF_A_JOB)


def evaluation_codes() -> set[str]:
    """Of evaluations that failed."""
    of_jobs = {
        f"{kind}_{code}" for kind in ("job", "judge") for code in (*_JOB_CODES.values(), "deleted")
    }
    return _made(_OF_AN_EVALUATION) | set(_CODES.values()) | of_jobs


def exit_codes() -> dict[str, int]:
    """The exit code of each class of errors that a command or a worker may end with."""
    kinds = [*_below(JobsError), *_below(worker.errors.WorkerError)]
    ours = [kind for kind in kinds if kind.__module__.split(".")[0] in ("jobs", "worker")]
    return {kind.__name__: kind.exit_code for kind in ours if kind is not RowError}


def _below(kind: type) -> Iterator[type]:
    yield kind
    for child in kind.__subclasses__():
        yield from _below(child)


def _made(makers: dict[str, int]) -> set[str]:
    found = set()
    for module, tree, calls in _calls():
        for call in calls:
            name = f"{module}.{ast.unparse(call.func)}"
            for maker, place in makers.items():
                if name.endswith(f".{maker}") and len(call.args) > place:
                    found |= _texts(call.args[place], tree)
    return found


@cache
def _calls() -> list[tuple[str, ast.Module, list[ast.Call]]]:
    """By module, the calls of whatever may make an error."""
    makers = {name.rpartition(".")[2] for name in _OF_A_ROW | _OF_A_JOB | _OF_AN_EVALUATION}
    found = []
    for room in ("jobs", "engine", "worker"):
        for path in sorted((ROOT / room).rglob("*.py")):
            text = path.read_text("utf-8")
            if not any(f"{maker}(" in text for maker in makers):
                continue
            tree = ast.parse(text)
            calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found.append((module, tree, [call for call in calls if _called(call) in makers]))
    return found


def _called(call: ast.Call) -> str:
    """The last name of what is called."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _texts(code: ast.expr, tree: ast.Module) -> set[str]:
    """What an expression may be: a text, one of several, or what a name of the module has."""
    if isinstance(code, ast.Constant):
        return {str(code.value)}
    if isinstance(code, ast.IfExp):
        return _texts(code.body, tree) | _texts(code.orelse, tree)
    if isinstance(code, ast.BoolOp):
        return set().union(*(_texts(value, tree) for value in code.values))
    if isinstance(code, ast.JoinedStr):
        assert "{kind}_" in ast.unparse(code), "a code that is put together is found nowhere"
        return set()
    if ast.unparse(code) in _HANDED_ON:
        return set()
    values = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == ast.unparse(code)
    ]
    assert values, f"no code was found for `{ast.unparse(code)}`"
    return set().union(*(_texts(value, tree) for value in values))
