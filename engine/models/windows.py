"""Which layers have a sliding window, as each family's `config.json` says it."""

from __future__ import annotations

from engine.errors import BrokenModel, UnsupportedModel
from engine.models.fields import Fields, shown

Windows = tuple[int | None, ...]

# `attention` is what some older files call full attention.
_FULL, _SLIDING = ("full_attention", "attention"), "sliding_attention"


def no_windows(fields: Fields, num_layers: int) -> Windows:
    """Llama: every layer attends to everything, and a file that says otherwise is refused."""
    window = fields.read_nullable("sliding_window", int)
    if window is not None and window < fields.read("max_position_embeddings", int):
        raise UnsupportedModel(
            f"{fields.path}: sliding_window is {window}, but this architecture has no sliding "
            "window; set it to null if the model attends to everything"
        )
    windows = _by_layer_types(fields, num_layers, window)
    return (None,) * num_layers if windows is None else windows


def same_window(fields: Fields, num_layers: int) -> Windows:
    """Mistral: `sliding_window` for every layer, or for those that `layer_types` names."""
    window = _window(fields)
    if window is not None and fields.get("use_sliding_window") is False:
        raise BrokenModel(
            f"{fields.path}: sliding_window is {window}, but use_sliding_window is false; set "
            "sliding_window to null if the model has none"
        )
    windows = _by_layer_types(fields, num_layers, window)
    return (window,) * num_layers if windows is None else windows


def upper_windows(fields: Fields, num_layers: int) -> Windows:
    """Qwen: the layers from `max_window_layers` on, or those that `layer_types` names."""
    window = _window(fields) if fields.read("use_sliding_window", bool) else None
    windows = _by_layer_types(fields, num_layers, window)
    if windows is not None:
        return windows
    first = fields.read("max_window_layers", int)
    return tuple(window if i >= first else None for i in range(num_layers))


def _window(fields: Fields) -> int | None:
    window = fields.read_nullable("sliding_window", int)
    if window is not None and window < 1:
        raise BrokenModel(f"{fields.path}: sliding_window is {window}; it must be 1 or more")
    return window


def _by_layer_types(fields: Fields, num_layers: int, window: int | None) -> Windows | None:
    """The window of each layer by `layer_types`, None where the file has no such list."""
    types = fields.read_nullable("layer_types", list)
    if types is None:
        return None
    if len(types) != num_layers:
        raise BrokenModel(
            f"{fields.path}: layer_types names {len(types)} layers, num_hidden_layers {num_layers}"
        )
    for layer_type in types:
        if layer_type not in (*_FULL, _SLIDING):
            raise UnsupportedModel(
                f"{fields.path}: layer_types names {shown(layer_type)}; supported are "
                f"{_FULL[0]!r} and {_SLIDING!r}"
            )
    if window is None and _SLIDING in types:
        raise BrokenModel(
            f"{fields.path}: layer_types names {_SLIDING!r}, but no sliding_window is in use"
        )
    return tuple(window if layer_type == _SLIDING else None for layer_type in types)
