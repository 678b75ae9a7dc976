"""The pages about the command line and the output name everything there is."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from typer.main import get_command

from engine.errors import ROW_ERRORS
from jobs.cli.app import app
from jobs.errors import JobsError
from jobs.records import Counts
from jobs.schema import ERROR, OUTPUT
from jobs.settings import Settings
from jobs.states import JobState

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
CLI = (ROOT / "docs" / "cli.md").read_text("utf-8")
OUTPUT_PAGE = (ROOT / "docs" / "output.md").read_text("utf-8")


def options() -> list[tuple[str, str]]:
    root = get_command(app)
    found: list[tuple[str, str]] = []
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        for inner in getattr(command, "commands", {"": command}).values():
            found += [(name, option) for p in inner.params for option in p.opts if option[0] == "-"]
    return [(name, option) for name, option in found if option not in ("-h", "--help")]


@pytest.mark.parametrize("option", sorted({option for _, option in options()}))
def test_every_option_is_on_the_page(option: str) -> None:
    assert re.search(rf"`[^`]*{re.escape(option)}\b", CLI)


def test_every_command_is_on_the_page() -> None:
    for name in get_command(app).commands:  # type: ignore[attr-defined]
        assert re.search(rf"\*\*`{name}\b", CLI)


def test_every_exit_code_state_and_setting_is_on_the_page() -> None:
    def codes(error: type[JobsError]) -> set[int]:
        return {error.exit_code}.union(*(codes(kind) for kind in error.__subclasses__()))

    for code in codes(JobsError):
        assert re.search(rf"^\| {code} \|", CLI, re.MULTILINE)
    for state in JobState:
        assert f"`{state}`" in CLI
    for name in Settings.from_env({}).to_env():
        assert f"`{name}`" in CLI


def test_every_column_and_count_is_on_the_page() -> None:
    for name in [*OUTPUT.names, *(f"error.{field.name}" for field in ERROR)]:
        assert f"| `{name}` |" in OUTPUT_PAGE
    for field in dataclasses.fields(Counts):
        assert f"`{field.name}`" in OUTPUT_PAGE


def test_every_error_code_of_a_row_is_on_the_page() -> None:
    """Codes are found in the source, where the errors are made."""
    made = re.compile(r'(?:RowError|RequestError|RowErrorInfo)\(\s*"([a-z_0-9]+)"')
    codes = {
        code
        for room in ("jobs", "engine", "worker")
        for path in (ROOT / room).rglob("*.py")
        for code in made.findall(path.read_text("utf-8"))
    }
    assert len(codes) > 20
    codes -= {"duplicate_request"}  # of a caller of the engine, never of a row
    for code in sorted(
        codes | ROW_ERRORS.keys() | {"engine_crashed", "engine_error", "cancelled", "expired"}
    ):
        assert f"`{code}`" in OUTPUT_PAGE, code
