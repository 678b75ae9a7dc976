"""What tests of migrations ask of Alembic and of the database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from alembic.config import Config
from sqlalchemy import Connection, Inspector, inspect

ROOT = Path(__file__).parents[2]


def config(connection: Connection | None = None) -> Config:
    """Alembic as our pyproject.toml sets it up, on this connection."""
    config = Config(toml_file=ROOT / "pyproject.toml")
    config.attributes["connection"] = connection
    return config


def schema(connection: Connection) -> dict[str, Any]:
    """All that the database itself says of its tables and views."""
    found: Inspector = inspect(connection)
    views: dict[str, Any] = {
        name: {
            "definition": found.get_view_definition(name),
            "columns": [(c["name"], repr(c["type"])) for c in found.get_columns(name)],
        }
        for name in found.get_view_names()
    }
    return views | {
        name: {
            "columns": sorted(
                (c["name"], repr(c["type"]), c["nullable"], c["default"])
                for c in found.get_columns(name)
            ),
            "primary key": found.get_pk_constraint(name),
            "foreign keys": found.get_foreign_keys(name),
            "unique": found.get_unique_constraints(name),
            "checks": sorted((c["name"], c["sqltext"]) for c in found.get_check_constraints(name)),
            "indexes": sorted(
                # The condition of a partial index is a clause, which compares by identity.
                json.dumps(index, default=str, sort_keys=True)
                for index in found.get_indexes(name)
            ),
        }
        for name in found.get_table_names()
        if name != "alembic_version"
    }
