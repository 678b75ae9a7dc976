"""Installed packages, and where models are kept, for `worker.doctor`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from engine.errors import EngineError
from engine.loading.cache import cache_folder
from jobs.doctor.disks import existing, room
from jobs.doctor.findings import Finding, fault, warning, well

_DISTRIBUTION = "pagemill"
_AGAIN = (
    "install pagemill again: `pip install --constraint constraints.txt --editable .` in a clone, "
    "or its wheel"
)
_SHOWN = ("torch", "transformers", "tokenizers", "celery", "sqlalchemy", "pyarrow")


def check_packages() -> Iterator[Finding]:
    """Whether all that pagemill needs is installed, in versions that it works with."""
    try:
        declared = requires(_DISTRIBUTION) or []
    except PackageNotFoundError:
        yield warning(
            "packages",
            "pagemill is not installed, so it is not known which versions it needs",
            "install it (`pip install --constraint constraints.txt --editable .` in a clone)",
        )
        return
    wrong = [said for said in map(_what_is_wrong, map(Requirement, declared)) if said]
    if wrong:
        yield fault("packages", "; ".join(wrong), _AGAIN)
        return
    yield well("packages", ", ".join(f"{name} {version(name)}" for name in _SHOWN))


def range_of(name: str) -> Requirement | None:
    """What pagemill says of a package, be it of an extra; None if nothing is known."""
    try:
        declared = [Requirement(text) for text in requires(_DISTRIBUTION) or []]
    except PackageNotFoundError:
        return None
    return next((requirement for requirement in declared if requirement.name == name), None)


def _what_is_wrong(requirement: Requirement) -> str | None:
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
        return None
    try:
        found = version(requirement.name)
    except PackageNotFoundError:
        return f"{requirement.name} is missing"
    if requirement.specifier.contains(found, prereleases=True):
        return None
    return f"{requirement.name} is {found}, and must be {requirement.specifier}"


def check_kernels() -> Iterator[Finding]:
    """Whether `kernels` is ours, and no other distribution overwrites it."""
    from engine.house import check_kernels_package

    advice = "run `pip uninstall kernels`, then install pagemill again"
    try:
        check_kernels_package()
    except EngineError as error:
        yield fault("kernels", str(error), advice)
        return
    try:
        found = version("kernels")
    except PackageNotFoundError:
        yield well("kernels", "the package is pagemill's own, and no other has its name")
        return
    yield warning(
        "kernels",
        f"Hugging Face's distribution `kernels` {found} is installed beside pagemill, whose "
        "package has the same name: each overwrites files of the other",
        advice,
    )


def check_cache() -> Iterator[Finding]:
    """Whether converted and downloaded models can be kept."""
    folder = cache_folder()
    place = existing(folder.absolute())
    if not os.access(place, os.W_OK | os.X_OK):
        yield fault(
            "cache",
            f"{folder} cannot be written ({place} refuses), so .gguf models cannot be converted",
            "change the permissions, or set PAGEMILL_CACHE_DIR",
        )
        return
    free, trouble = room("cache", folder.absolute(), "make room on it, or set PAGEMILL_CACHE_DIR")
    yield trouble or well("cache", f"{folder}, {free}")
