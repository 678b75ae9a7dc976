"""The environment variables, from `jobs.settings`."""

from __future__ import annotations

import inspect
import re

from jobs.settings import MEMORY_BROKER, Settings


def variables() -> dict[str, tuple[str, str]]:
    """Each variable of `Settings`: its default, and what it means."""
    meant = _attributes()
    home = "<home>"
    defaults = Settings.from_env({"PAGEMILL_HOME": home}).to_env()
    found = {"PAGEMILL_HOME": ("the user's data folder", "where the defaults below lie")}
    for name, default in defaults.items():
        field = name.removeprefix("PAGEMILL_").lower()
        if field not in meant:
            field += "_seconds"
        shown = "none" if default in ("", MEMORY_BROKER) else f"`{default}`"
        found[name] = (shown, meant[field])
    return found


def markdown() -> str:
    rows = [f"| `{name}` | {default} | {says} |" for name, (default, says) in variables().items()]
    return "\n".join(["| variable | default | |", "|---|---|---|", *rows, ""])


def _attributes() -> dict[str, str]:
    """Of the class's docstring."""
    text = inspect.getdoc(Settings) or ""
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text.split("Attributes:")[1], re.M)
    return {name: re.sub(r"\s+", " ", says) for name, says in entries}
