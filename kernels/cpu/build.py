"""Builds the C++ kernels while the package is built, once for each vector extension.

The extensions are plain shared libraries without Python in them; `kernels.cpu.library` chooses
one at run time. A machine without a compiler builds none and computes with torch alone.
"""

from __future__ import annotations

import platform
import runpy
from pathlib import Path
from typing import Any

from setuptools import Extension
from setuptools.command.build_ext import build_ext

FLAGS = (
    "-std=gnu++17", "-O3", "-g0", "-fopenmp", "-fno-math-errno", "-fno-trapping-math",
    "-ffp-contract=fast", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-Wall", "-Wextra",
)  # fmt: skip

# Vector extension -> what turns it on. No others: a processor with less computes with torch.
VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {"avx512": ("-march=x86-64-v4",), "avx2": ("-march=x86-64-v3",)},
    "aarch64": {"neon": ("-march=armv8-a",)},
}


class BuildKernels(build_ext):  # type: ignore[misc]  # it has no types
    """`build_ext` that makes one library for each vector extension of the processor's family."""

    def finalize_options(self) -> None:
        self.distribution.ext_modules = [
            _variant_of(extension, name, flags)
            for extension in self.distribution.ext_modules
            for name, flags in _variants().items()
        ]
        super().finalize_options()

    def get_export_symbols(self, ext: Any) -> list[str]:
        return []  # there is no PyInit function


def _variant_of(extension: Extension, name: str, flags: tuple[str, ...]) -> Extension:
    return Extension(
        f"{extension.name.rpartition('.')[0]}._{name}",
        sources=extension.sources,
        depends=extension.depends,
        # OpenMP is not linked: its functions are those that torch has loaded, so that both share
        # one pool of threads.
        extra_compile_args=[*FLAGS, *flags, f'-DSOURCES_DIGEST="{_digest()}"'],
        py_limited_api=extension.py_limited_api,
        optional=extension.optional,
    )


def _digest() -> str:
    # Not imported: nothing of ours is on the path while it is built.
    found = runpy.run_path(str(Path(__file__).with_name("sources.py")))
    return str(found["sources_digest"]())


def _variants() -> dict[str, tuple[str, ...]]:
    return VARIANTS.get(platform.machine(), {}) if platform.system() == "Linux" else {}
