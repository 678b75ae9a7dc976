"""The library of C++ kernels that fits this processor, if there is one.

The wheel brings one library for each vector extension. It takes OpenMP's functions from what
torch has loaded, so its threads are torch's: `torch.set_num_threads` holds for both, and no two
pools compete for the cores.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import cast

import torch

from kernels.cpu.sources import sources_digest

logger = logging.getLogger("pagemill.engine")

# For tests and for measuring: one of the variants, or `none`.
VARIANT_VARIABLE = "PAGEMILL_CPU_KERNELS"
_FOLDER = Path(__file__).parent


@functools.cache
def library() -> ctypes.CDLL | None:
    """The kernels, or None where none were built or none fit; says so once, then."""
    wanted = variant()
    if wanted is None:
        return None
    path = _FOLDER / f"_{wanted}.abi3.so"
    if not path.is_file():
        logger.warning(
            "%s is missing, so attention on this processor is computed by torch, several times "
            "slower; install pagemill from its wheel, or again where there is a C++ compiler",
            path.name,
        )
        return None
    try:
        found = ctypes.CDLL(str(path))
    except OSError as error:
        logger.warning("%s cannot be loaded, so torch computes attention: %s", path.name, error)
        return None
    if _built_from(found) != sources_digest():
        logger.warning(
            "%s was built from other sources than those beside it, so torch computes attention, "
            "several times slower; install pagemill again (pip install -e .)",
            path.name,
        )
        return None
    return found


def _built_from(found: ctypes.CDLL) -> str | None:
    """Digest of the sources of a library; None where it does not carry one."""
    try:
        digest = ctypes.c_char_p.in_dll(found, "pagemill_sources").value
    except ValueError:
        return None
    return None if digest is None else digest.decode()


def variant() -> str | None:
    """Name of the vector extension to use; None where there is no library for the processor."""
    named = os.environ.get(VARIANT_VARIABLE)
    if named is not None:
        return None if named == "none" else named
    if platform.system() != "Linux":
        return None
    if platform.machine() == "aarch64":
        return "neon"
    return {"AVX512": "avx512", "AVX2": "avx2"}.get(torch.backends.cpu.get_cpu_capability())


def function(name: str, *argument_types: type) -> Callable[..., None]:
    """One function of the library, which must be there."""
    found = library()
    assert found is not None
    result = getattr(found, f"pagemill_{name}")
    result.argtypes, result.restype = argument_types, None
    return cast(Callable[..., None], result)


@functools.cache
def find(name: str, *argument_types: type) -> Callable[..., None] | None:
    """One function of the library; None where there is no library."""
    return function(name, *argument_types) if library() is not None else None
