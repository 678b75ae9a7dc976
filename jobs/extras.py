"""How packages are installed that pagemill needs for some things only."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """What to type; pagemill is on no index, so it depends on where it was installed from."""
    return (
        f"`pip install --constraint constraints.txt --editable '.[{extra}]'` in a clone, "
        f"`pip install 'dist/pagemill-….whl[{extra}]'` with a wheel"
    )
