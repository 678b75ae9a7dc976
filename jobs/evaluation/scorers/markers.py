"""Where answers say what their answer is."""

from __future__ import annotations

_BOX = "\\boxed{"


def boxed(text: str) -> str | None:
    """What stands in the last `\\boxed{…}` of a text, with the braces in it."""
    start = text.rfind(_BOX)
    if start < 0:
        return None
    depth = 0
    for i in range(start + len(_BOX) - 1, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[start + len(_BOX) : i]
    return None  # it was cut off
