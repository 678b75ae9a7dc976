"""What is in the wheel and in the source distribution, and what they ask for."""

from __future__ import annotations

import ast
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import jobs
from kernels.cpu.build import VARIANTS
from tests.support.wheels import ROOMS, UNCOMPILED, build_wheel

# Not imported by us, but by what we import, which does not ask for them itself.
IMPORTED_BY_OTHERS = {
    "packaging": "kombu's Redis transport",
    "redis": "kombu's Redis transport",
    "accelerate": "transformers, when it reads GGUF files",
    "tzdata": "zoneinfo, where the system has no time zones",
}
# Imported while the wheel is built, and then only.
BUILD = {"setuptools"}
# Imported where it is there; a sentence says how to install it.
OPTIONAL = {"fsspec", "pandas", "polars"}


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_it_holds_every_file_of_the_rooms_and_nothing_else(names, source):
    shipped = {name for name in names if ".dist-info/" not in name}
    built = {name for name in shipped if name.endswith(".so")}
    assert shipped - built == {
        str(path.relative_to(source))
        for room in ROOMS
        for path in (source / room).rglob("*")
        if path.is_file()
    }
    assert {"migrations/script.py.mako", "jobs/py.typed", "engine/py.typed"} <= shipped
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_it_brings_the_kernels_of_every_vector_extension(names, wheel):
    """One library each where there is a compiler; for any Python from 3.11 on."""
    built = {name for name in names if name.endswith(".so")}
    if shutil.which("g++") is None:
        assert built == set()
    else:
        variants = VARIANTS[platform.machine()]
        assert built == {f"kernels/cpu/_{name}.abi3.so" for name in variants}
    assert re.search(r"-cp311-abi3-\w+\.whl$", wheel.name)


def test_it_says_what_it_is(metadata):
    assert metadata["Name"] == "pagemill"
    assert metadata["Version"] == jobs.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Summary"]


def test_its_programs_are_pagemill_and_jobs(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("/entry_points.txt"))
        text = archive.read(name).decode()
    assert re.findall(r"^(\w+) = (\S+)$", text, re.MULTILINE) == [
        ("jobs", "jobs.__main__:main"),
        ("pagemill", "jobs.__main__:main"),
    ]


def imported(source: Path) -> Iterator[tuple[str, Path]]:
    """Top-level names that the rooms import from elsewhere, wherever in a file they do."""
    for room in ROOMS:
        for path in (source / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                modules: list[str] = []
                if isinstance(node, ast.Import):
                    modules = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    modules = [node.module]
                for module in modules:
                    name = module.partition(".")[0]
                    if name not in sys.stdlib_module_names and name not in ROOMS:
                        yield name, path


def required(metadata: Message) -> dict[str, Requirement]:
    """Distributions that it asks for, not counting what only its developers need."""
    found = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    return {
        canonicalize_name(requirement.name): requirement
        for requirement in found
        if not (requirement.marker and re.search(r'extra == "dev"', str(requirement.marker)))
    }


def test_it_asks_for_everything_that_it_imports(metadata, source):
    asked = required(metadata)
    distributions = packages_distributions()
    for name, path in imported(source):
        provided_by = {canonicalize_name(d) for d in distributions.get(name, [name])}
        assert provided_by & set(asked) or name in OPTIONAL | BUILD, f"{path} imports {name}"


def test_it_asks_for_nothing_that_it_does_not_import(metadata, source):
    distributions = packages_distributions()
    used = {
        canonicalize_name(distribution)
        for name, _ in imported(source)
        for distribution in distributions.get(name, [])
    }
    unused = {
        name
        for name, requirement in required(metadata).items()
        if name not in used and not requirement.marker  # an extra is somebody's choice
    }
    assert unused == set(IMPORTED_BY_OTHERS) - used


def test_extras_are_those_that_the_documentation_names(metadata, source):
    page = (source / "docs" / "install.md").read_text("utf-8")
    extras = set(metadata.get_all("Provides-Extra", []))
    assert extras == {"dev", "docs", "evals", "postgres", "triton"}
    for extra in extras - {"dev"}:
        assert f"`{extra}`" in page


def without_optimization(folder: Path) -> Path:
    """A compiler that is quick, for what is never run."""
    compiler = folder / "quick-g++"
    compiler.write_text('#!/bin/sh\nexec g++ "$@" -O0\n')
    compiler.chmod(0o755)
    return compiler


def test_a_wheel_from_the_source_distribution_is_the_same(names, source, tmp_path, monkeypatch):
    build = "import sys, setuptools.build_meta as b; b.build_sdist(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)],
        cwd=source, check=True, capture_output=True, timeout=120, env=os.environ | UNCOMPILED,
    )  # fmt: skip
    (packed,) = tmp_path.glob("pagemill-*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    for name in ("CC", "CXX"):
        monkeypatch.setenv(name, str(without_optimization(tmp_path)))
    with zipfile.ZipFile(build_wheel(unpacked, tmp_path / "dist")) as archive:
        assert set(archive.namelist()) == names
