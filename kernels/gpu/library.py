"""Which devices the Triton kernels serve, and how the rest of the package finds them.

The CUDA builds of torch bring the triton that fits them; other builds bring none, so triton is
imported only where it will be used.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
from collections.abc import Callable

import torch

logger = logging.getLogger("pagemill.engine")

# For tests and for measuring: `none` leaves everything to torch; `interpreter` has processors
# served, too, by Triton's interpreter, which needs TRITON_INTERPRET=1 before triton is imported.
VARIANT_VARIABLE = "PAGEMILL_GPU_KERNELS"


def serves(device: torch.device) -> bool:
    """Whether tensors of a device go to the Triton kernels."""
    return _serves(device.type)


@functools.cache
def _serves(device_type: str) -> bool:
    variant = os.environ.get(VARIANT_VARIABLE)
    if variant == "none" or device_type != ("cpu" if variant == "interpreter" else "cuda"):
        return False
    if importlib.util.find_spec("triton") is None:
        logger.warning(
            "triton is missing, so torch computes everything on this GPU, many times slower; "
            "install a CUDA build of torch, which brings it, or the extra triton (docs/install.md)"
        )
        return False
    return True


def find(operation: str, device: torch.device) -> Callable[..., torch.Tensor] | None:
    """An operation by its name; None where the device is not served by the Triton kernels."""
    return _find(operation) if _serves(device.type) else None


@functools.cache
def _find(operation: str) -> Callable[..., torch.Tensor]:
    registry = importlib.import_module("kernels.gpu.operations")
    found: Callable[..., torch.Tensor] = registry.OPERATIONS[operation]
    return found


def forget() -> None:
    """Look at the environment anew; for tests."""
    _serves.cache_clear()
