"""How near a result has to be to what is right."""

from __future__ import annotations

from typing import Any

import torch

# Of the largest magnitude of what is right, for results of each dtype. Sums are in float32, and
# weights of attention are rounded to the dtype before they are multiplied with values.
SHARE = {torch.float32: 5e-5, torch.float16: 4e-3, torch.bfloat16: 2e-2}


def error(found: torch.Tensor, right: torch.Tensor) -> float:
    """Largest deviation, as a share of the largest magnitude of what is right.

    Raises:
        AssertionError: there is something that is not finite.
    """
    assert found.shape == right.shape, f"shape {tuple(found.shape)}, not {tuple(right.shape)}"
    assert bool(found.isfinite().all()), "there are numbers that are not finite"
    scale = right.abs().max().item() or 1.0
    return float((found.double() - right.double()).abs().max().item() / scale)


def near(found: torch.Tensor, right: torch.Tensor, share: float | None = None) -> dict[str, Any]:
    """The error, as figures.

    Raises:
        AssertionError: it is too large.
    """
    allowed = SHARE[found.dtype] if share is None else share
    deviation = error(found, right)
    assert deviation <= allowed, f"an error of {deviation:.3g}, {allowed:.3g} are allowed"
    return {"error": float(f"{deviation:.3g}"), "allowed": allowed}
