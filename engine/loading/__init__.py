"""From a name to a model that runs: find the files, convert where needed, load the weights.

Nothing here imports torch until weights are converted or loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.loading.resolve import ModelFiles, resolve_model

if TYPE_CHECKING:
    from engine.loading.loaded import LoadedModel

__all__ = ["ModelFiles", "load_model", "resolve_model"]


def load_model(
    files: ModelFiles, dtype: str = "auto", device: str = "auto", *, deterministic: bool = False
) -> LoadedModel:
    """Load weights from a folder; see `engine.loading.weights.load_model`."""
    from engine.loading import weights

    return weights.load_model(files, dtype, device, deterministic=deterministic)
