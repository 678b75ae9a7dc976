"""Globals of templates that stand for classes, from which much could be reached."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace


class SafeDict:
    """The global `dict`: not the class itself, from which much can be reached."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        return dict.fromkeys(keys, value)


class SafeNamespace(Namespace):
    """Jinja's, without names that Python or Jinja may give a meaning."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *given = args  # so that a name may be `self`
        attributes = dict(*given, **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or name.startswith("_"):
        raise SecurityError(f"a namespace may have no name like {name!r}")
