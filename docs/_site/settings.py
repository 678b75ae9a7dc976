"""The environment variables, from `jobs.settings`."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from jobs.settings import MEMORY_BROKER, Settings

CLI = Path(__file__).parents[1] / "cli.md"


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


def others() -> list[str]:
    """The rows of docs/cli.md with variables that `Settings` does not read."""
    section = CLI.read_text("utf-8").split("\n## Settings\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `PAGEMILL_.*\|$", section, re.MULTILINE)
    known = variables()
    left = [row for row in rows if not set(re.findall(r"PAGEMILL_[A-Z_]+", row)) & known.keys()]
    # Links as seen from reference/.
    return [re.sub(r"\]\((\w+\.md)", r"](../\1", row) for row in left]


def markdown() -> str:
    rows = [f"| `{name}` | {default} | {says} |" for name, (default, says) in variables().items()]
    head = ["| variable | default | |", "|---|---|---|"]
    parts = ["## Of a deployment\n", *head, *rows, "", "## Of single processes\n", *head, *others()]
    return "\n".join([*parts, ""])


def _attributes() -> dict[str, str]:
    """Of the class's docstring."""
    text = inspect.getdoc(Settings) or ""
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", text.split("Attributes:")[1], re.M)
    return {name: re.sub(r"\s+", " ", says) for name, says in entries}
