"""torch, triton and the kernels on this machine, for `worker.doctor`."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from jobs.doctor.disks import GIB, existing
from jobs.doctor.findings import Finding, fault, warning, well
from worker.doctor_packages import range_of

_DRIVER = Path("/proc/driver/nvidia/version")
_OLDEST = (8, 0)  # the kernels are compiled and measured for Ampere and Hopper


def check_torch() -> Iterator[Finding]:
    """Whether torch can be imported, and computes on each GPU that there is."""
    import torch

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
    shown = f"torch {torch.__version__} ({build} build)"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    if available:
        yield well("torch", f"{shown}, {torch.cuda.device_count()} GPUs")
        for index in range(torch.cuda.device_count()):
            yield _computes(index)
    elif not _DRIVER.exists():
        yield well("torch", f"{shown}; there is no NVIDIA driver, so it computes on the CPU")
    elif torch.version.cuda is None:
        yield warning(
            "torch",
            f"{shown} on a machine with an NVIDIA driver: it uses no GPU",
            "install a CUDA build: `pip install --force-reinstall torch` without an index of "
            "CPU builds",
        )
    else:
        why = "; ".join(str(w.message).splitlines()[0] for w in said) or "it does not say why"
        yield fault(
            "torch",
            f"{shown} cannot use the GPU: {why}",
            "install a newer driver, or a torch built for an older CUDA; see that "
            "CUDA_VISIBLE_DEVICES is right, and that a container has its GPUs",
        )


def _computes(index: int) -> Finding:
    import torch

    name = torch.cuda.get_device_name(index)
    capability = torch.cuda.get_device_capability(index)
    shown = f"cuda:{index}, {name}, capability {capability[0]}.{capability[1]}"
    try:
        total = torch.ones(1000, device=f"cuda:{index}").sum().item()
        free, size = torch.cuda.mem_get_info(index)
    except torch.OutOfMemoryError:
        return warning(
            "gpu",
            f"{shown}: its memory is full",
            "end what else runs there (`nvidia-smi` lists it)",
        )
    except RuntimeError as error:
        return fault(
            "gpu",
            f"{shown} does not compute: {str(error).splitlines()[0]}",
            "install a build of torch that knows this GPU; look into `dmesg` for Xid errors",
        )
    if total != 1000:
        return fault("gpu", f"{shown} computes wrongly", "look into `dmesg`, and have it replaced")
    if capability < _OLDEST:
        return warning(
            "gpu",
            f"{shown} is older than pagemill's kernels were made for (8.0)",
            "expect errors or slowness; PAGEMILL_GPU_KERNELS=none lets torch compute everything",
        )
    return well("gpu", f"{shown}: computes, {free / GIB:.1f} of {size / GIB:.1f} GiB free")


def check_triton() -> Iterator[Finding]:
    """Whether triton is there, in a version that fits, and finds what it compiles with."""
    import torch

    on_gpu = torch.cuda.is_available()
    if importlib.util.find_spec("triton") is None:
        if on_gpu:
            yield fault(
                "triton",
                "it is missing, so torch computes everything on the GPU, many times slower",
                "install a CUDA build of torch, which brings it, or the extra triton "
                "(docs/install.md)",
            )
        else:
            yield well("triton", "it is not installed; only GPUs need it")
        return
    found, wanted = version("triton"), range_of("triton")
    if wanted is not None and not wanted.specifier.contains(found, prereleases=True):
        yield warning(
            "triton",
            f"it is {found}; pagemill's kernels are tested with {wanted.specifier}",
            "install the torch of constraints.txt, which brings the triton that fits",
        )
        return
    import triton  # noqa: F401 (whether it can be imported)

    yield (on_gpu and _compiles()) or well("triton", f"triton {found}")


def _compiles() -> Finding | None:
    """What triton lacks to compile kernels with, if anything."""
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("gcc", "cc", "clang")), None)
    if compiler is None or shutil.which(compiler) is None:
        return fault(
            "triton",
            "there is no C compiler, without which triton cannot launch kernels",
            "install gcc (`apt-get install gcc`), or name a compiler in CC",
        )
    cache = Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache")
    if not os.access(existing(cache.absolute()), os.W_OK | os.X_OK):
        return fault(
            "triton",
            f"its cache {cache} cannot be written",
            "set TRITON_CACHE_DIR to a folder that can",
        )
    return None


def check_cpu_kernels() -> Iterator[Finding]:
    """Whether the C++ kernels for this processor are there."""
    from kernels.cpu.library import library, variant

    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("pagemill.engine")
    logger.addHandler(handler)
    try:
        found = library()
    finally:
        logger.removeHandler(handler)
    name = variant()
    if found is not None:
        yield well("cpu kernels", f"those for {name} fit this processor")
        return
    yield warning(
        "cpu kernels",
        said[0] if said else "there are none for this processor; torch computes, slower",
        "install pagemill from its wheel, or again where there is a C++ compiler; on a GPU "
        "nothing needs them",
    )
