"""Nothing in the packages runs code that comes from a file, a message or a model."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
PACKAGES = ("jobs", "worker", "engine", "kernels", "migrations")
# Modules whose formats hold code, or that make code of text.
MODULES = frozenset(
    {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "code",
     "codeop", "imp", "runpy", "yaml", "xmlrpc"}
)  # fmt: skip
FUNCTIONS = frozenset({"eval", "exec", "compile", "__import__", "breakpoint", "input"})
METHODS = frozenset({"torch.load", "os.system", "os.popen", "torch.hub.load", "np.load"})
# torch.nn.Module.eval, re.compile and the like are methods of something that we made.


def found(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.ImportFrom():
                names = [node.module or ""]
            case _:
                names = []
        yield from (name for name in names if name.partition(".")[0] in MODULES)
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in FUNCTIONS or called in METHODS:
                yield called
            for keyword in node.keywords:
                shown = f"{keyword.arg}={ast.unparse(keyword.value)}"
                if keyword.arg == "shell" and shown != "shell=False":
                    yield shown
                if keyword.arg == "trust_remote_code" and shown != "trust_remote_code=False":
                    yield shown
                if keyword.arg in ("weights_only", "allow_pickle"):
                    yield shown
            if called.endswith("from_pretrained") and not any(
                keyword.arg == "trust_remote_code" for keyword in node.keywords
            ):
                yield f"{called} without trust_remote_code"
        if isinstance(node, ast.Attribute) and node.attr in ("allow_pickle", "weights_only"):
            yield node.attr


# Our own list of sources, beside it in our package.
ALLOWED = {("kernels/cpu/build.py", "runpy")}


def files() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_runs_what_was_read(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    assert [what for what in found(path.read_text()) if (name, what) not in ALLOWED] == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from yaml import load", "import xmlrpc.client", "eval('1')",
        "torch.load(x)", "exec(x)", "subprocess.run(x, shell=True)", "f(trust_remote_code=flag)",
        "AutoTokenizer.from_pretrained(x)", "np.load(x, allow_pickle=True)",
        "compile(x, '', 'eval')",
        "os.system(x)",
    ],
)  # fmt: skip
def test_it_would_be_found(source: str) -> None:
    assert list(found(source))


def test_all_packages_are_looked_at() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in files()} == set(PACKAGES)
    assert len(files()) > 150
