"""Every block of code of every page is run, read or parsed by some test.

A shell or Python block is run with all others of its page, JSON is parsed and rows are given to
the reader, YAML and units are parsed, commands of a `console` block have to be understood, and
what remains is `text`: the output of a command. Pages with tests of their own are named, and so
is each block that no test can run, with the reason.
"""

from __future__ import annotations

import configparser
import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from typer.main import get_command

from jobs.cli.app import app
from jobs.kinds import JobKind
from tests.support.markdown_pages import Block, blocks, pages
from tests.support.named_tests import is_a_test
from tests.support.page_session import (
    MODEL,
    NOT_RUN,
    Place,
    Prepared,
    empty,
    not_run,
    runnable,
    with_a_played_job,
)
from tests.support.submissions import prepare_lines
from tests.support.tiny_model import build_tiny_model

ALL = [block for page in pages() for block in blocks(page)]

# Tests that run all blocks of a language of a page.
ELSEWHERE = {
    ("README.md", "bash"): "tests/readme/test_readme.py::test_the_session_runs_as_written",
    ("README.md", "python"): "tests/readme/test_readme.py::test_the_session_runs_as_written",
    ("docs/operations.md", "yaml"): "tests/worker/test_operations_docs.py::"
    "test_the_rules_are_yaml_and_ask_for_metrics_that_there_are",
    ("docs/howto/metrics.md", "promql"): "tests/docs/test_howtos.py::"
    "test_expressions_ask_for_metrics_that_there_are",
    ("docs/polling.md", "bash"): "tests/docs/test_polling.py::test_shell",
    ("docs/polling.md", "python"): "tests/docs/test_polling.py::test_python",
    ("docs/polling.md", "sql"): "tests/docs/test_polling.py::test_sql",
    ("docs/python.md", "python"): "tests/docs/test_python.py::test_the_page_runs_as_written",
    ("docs/webhooks.md", "python"): "tests/docs/test_webhooks.py::test_what_is_told_is_taken",
    ("docs/servers.md", "sql"): "tests/jobs/test_database_rights.py::"
    "test_the_rights_of_the_page_suffice",
}

# Pages whose shell and Python blocks are run here, and what there is when they begin.
SESSIONS: dict[str, Prepared] = {
    "docs/errors.md": with_a_played_job,
    "docs/explanation/chunk.md": with_a_played_job,
    "docs/explanation/paged-attention.md": empty,
    "docs/howto/metrics.md": empty,
    "docs/howto/migrating.md": empty,
    "docs/howto/nightly.md": empty,
    "docs/howto/several-gpus.md": empty,
    "docs/howto/tuning.md": empty,
    "docs/quickstart.md": empty,
    "docs/servers.md": empty,
    "examples/evals/README.md": empty,
}

PARSED = ("console", "json", "yaml", "toml", "ini")


@pytest.mark.quick
@pytest.mark.parametrize("block", ALL, ids=str)
def test_a_block_is_covered_by_a_test(block: Block) -> None:
    covered = [
        block.language in PARSED,
        block in runnable(block.page) and block.page in SESSIONS,
        (block.page, block.language) in ELSEWHERE and block.language not in PARSED,
        not_run(block) is not None,
        block.language == "text",
    ]
    assert sum(covered) == 1, (
        f"{block} ({block.language or 'no language'}) is run by no test: name its page in SESSIONS "
        "or ELSEWHERE, call it `console` if it shows `$ pagemill …` with its output, or `text` if "
        "it is output alone"
    )


@pytest.mark.quick
def test_what_is_said_of_other_tests_is_so() -> None:
    for (page, language), test in ELSEWHERE.items():
        assert any((block.page, block.language) == (page, language) for block in ALL)
        assert is_a_test(*test.split("::"))
    used = {key for block in ALL if (key := not_run(block))}
    assert used == NOT_RUN.keys()
    for reason in NOT_RUN.values():
        assert len(reason.split()) > 3
        for word in reason.split():
            assert "::" not in word or is_a_test(*word.split("::")), word
    assert all(runnable(page) for page in SESSIONS)


@pytest.mark.quick
@pytest.mark.parametrize("block", [b for b in ALL if b.language == "text"], ids=str)
def test_what_is_called_output_is_none_of_our_commands(block: Block) -> None:
    commands = ("$ ", "pagemill ", "jobs ", "python ", "make ", "import ", "from ")
    assert not block.code.startswith(commands)


@pytest.mark.quick
@pytest.mark.parametrize("block", [b for b in ALL if b.language in PARSED], ids=str)
def test_it_can_be_parsed_and_rows_can_be_answered(block: Block, tmp_path: Path) -> None:
    if block.language == "console":
        commands = [line[2:] for line in block.code.splitlines() if line.startswith("$ ")]
        assert commands
        for command in commands:
            is_understood(shlex.split(command))
    elif block.language == "yaml":
        assert yaml.safe_load(block.code)
    elif block.language == "toml":
        assert tomllib.loads(block.code)
    elif block.language == "ini":
        units = configparser.ConfigParser(strict=False, interpolation=None)
        units.read_string(block.code)
        assert units.sections()
    elif not block.words:  # those with a word are wrong on purpose: tests/docs/test_errors.py
        found = values(block.code)
        rows = [value for value in found if is_a_row(value)]
        if rows:
            assert rows == found
            lines = block.code.encode().splitlines()
            prepared = prepare_lines(tmp_path, *lines, strict=True, **options_for(rows))
            assert len(prepared.rows()) == len(rows)


def is_understood(words: list[str]) -> None:
    """There is such a command, with such options."""
    assert words[0] == "pagemill"
    name, command = words[0], get_command(app)
    rest = words[1:]
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest[0]]  # type: ignore[attr-defined]
        name, *rest = rest
    if "--help" not in rest:  # which would end us
        command.make_context(name, rest)


def values(code: str) -> list[object]:
    """Of a block that is one value, or one on each line."""
    try:
        return [json.loads(code)]
    except json.JSONDecodeError:
        return [orjson.loads(line) for line in code.splitlines()]


def is_a_row(value: object) -> bool:
    return isinstance(value, dict) and bool(
        value.keys() & {"prompt", "messages", "body"} or value.keys() <= {"custom_id", "input"}
    )


def options_for(rows: list[object]) -> dict[str, Any]:
    keys = {key for row in rows if isinstance(row, dict) for key in row}
    kinds = {"choices": JobKind.SCORE, "input": JobKind.EMBED}
    kind = next((kind for key, kind in kinds.items() if key in keys), JobKind.GENERATE)
    return {"model": MODEL, "kind": kind}


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(
        tmp_path_factory.mktemp("models") / "tiny",
        max_position_embeddings=8192,  # a token is a byte, and the examples have thousands
    )


@pytest.mark.parametrize("page", SESSIONS)
def test_the_session_of_a_page_runs_as_written(
    page: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """But for the model: what a large one says is tested with the README."""
    needed = any(MODEL in block.code for block in runnable(page))
    place = Place(tmp_path, request.getfixturevalue("tiny_model") if needed else None)
    SESSIONS[page](place)
    place.run(page)
