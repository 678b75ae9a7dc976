"""The columns of the views that are polled, as a database of this version has them."""

from __future__ import annotations

import logging
import re
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from jobs.database import upgrade
from jobs.views import VIEWS

POLLING = Path(__file__).parents[1] / "polling.md"


def columns() -> dict[str, list[str]]:
    """By view, in the order of the database."""
    logging.getLogger("alembic").setLevel(logging.WARNING)  # Sphinx shows what others log
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pagemill.db")
        upgrade(f"sqlite:///{path}")
        with closing(sqlite3.connect(path)) as database:
            return {
                view: [row[1] for row in database.execute(f"PRAGMA table_info({view})")]
                for view in VIEWS
            }


def markdown() -> str:
    parts = []
    for view, names in columns().items():
        told = _told(view)
        parts.append(f"## {view}\n\n| column | type | |\n|---|---|---|")
        parts += [f"| `{name}` | {' | '.join(told[name])} |" for name in names]
        parts.append("")
    return "\n".join(parts)


def _told(view: str) -> dict[str, tuple[str, str]]:
    """Type and meaning of each column, by the page that promises them."""
    section = re.search(rf"^## {view}\n(.*?)^## ", POLLING.read_text("utf-8"), re.M | re.S)
    assert section is not None, f"docs/polling.md does not tell of {view}"
    # Links as seen from reference/.
    text = re.sub(r"\]\((\w+\.md)", r"](../\1", section[1]).replace("](#", "](../polling.md#")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|(.*)\|$", text, re.M)
    return {name: (kind, says.strip()) for name, kind, says in rows}
