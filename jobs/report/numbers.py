"""Numbers as people read them."""

from __future__ import annotations


def decimal(value: float, *, signed: bool = False, short: bool = False) -> str:
    """Three digits after the point, or as many as tell it from zero.

    Args:
        signed: with a plus, too.
        short: without zeros at the end.
    """
    if value and abs(value) < 0.0005:
        text = f"{value:+.1e}" if signed else f"{value:.1e}"
    elif abs(value) >= 1e6:
        text = f"{value:+.4g}" if signed else f"{value:.4g}"
    else:
        text = f"{value:+.3f}" if signed else f"{value:.3f}"
        if short and "." in text:
            text = text.rstrip("0").rstrip(".")
    return text.replace("-", "\u2212")


def probability(value: float) -> str:
    """`0.034`, or `<0.001`."""
    return "<0.001" if value < 0.001 else f"{value:.3f}"
