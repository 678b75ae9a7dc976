"""What docs/input.md and the example promise."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from jobs import openai_lines, sandbox, text_growth
from jobs.keys import Kind, meaning
from jobs.messages import ROLES
from jobs.parameters import CHECKS
from jobs.reading import page_sizes
from jobs.reading.columns import MAX_COLUMNS
from jobs.reading.jsonl import MAX_KEYS
from jobs.reading.lines import MAX_LINE_BYTES
from jobs.reading.parquet import MAX_ROW_BYTES
from jobs.reading.unpacking import MAX_UNPACKED_BYTES, USUAL_RATIO
from jobs.submission import MAX_ROWS
from jobs.template import MAX_PROMPT_CHARS
from jobs.unsupported import UNSUPPORTED
from tests.support.submissions import prepare_file, prepare_lines

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "input.md").read_text(encoding="utf-8")
SOURCES = [*(ROOT / "jobs").glob("*.py"), *(ROOT / "jobs" / "reading").glob("*.py")]


def test_every_error_code_is_documented_and_no_other() -> None:
    table = PAGE.split("## Error rows")[1].split("## Refused inputs")[0]
    documented = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    raised = {
        code
        for path in SOURCES
        for code in re.findall(r'RowError\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert documented == raised


def test_every_parameter_and_role_is_documented() -> None:
    assert all(f"| `{name}` |" in PAGE for name in CHECKS)
    assert all(f"`{role}`" in PAGE for role in ROLES)


def test_every_key_for_the_chat_template_is_documented() -> None:
    keys = ("tools", "tool_choice", "chat_template_kwargs", "reasoning_effort")
    assert all(meaning(key).kind is Kind.CHAT and f"| `{key}` |" in PAGE for key in keys)


def neutral_values(page: str) -> dict[str, tuple[Any, ...]]:
    """What a table of values and parameters says."""
    return {
        name: (orjson.loads(value),)
        for value, names in re.findall(r"^\| `([^`]+)` \| (`.*`) \|$", page, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }


def test_every_value_that_changes_nothing_is_documented_and_no_other() -> None:
    section = PAGE.split("### Values that change nothing")[1].split("\n## ")[0]
    everywhere, in_bodies = section.split("and in bodies of batch files only:")
    assert neutral_values(everywhere) == {k: v for k, v in UNSUPPORTED.items() if v}
    assert neutral_values(in_bodies) == {k: v for k, v in openai_lines._UNSUPPORTED.items() if v}


def test_what_is_ignored_in_bodies_is_documented() -> None:
    (names,) = re.findall(r"^\| (.*) \| nothing: they concern the service", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", names)) == openai_lines._SERVICE


def test_the_bounds_of_templates_are_documented() -> None:
    assert f"{MAX_PROMPT_CHARS >> 20} MiB of characters for the prompt" in PAGE
    assert f"{sandbox.MAX_CHARACTERS >> 20} Mi characters of text" in PAGE
    assert f"{sandbox.MAX_STEPS:,} steps" in PAGE
    assert f"and {sandbox.MAX_SECONDS:g} seconds" in PAGE
    assert f"would make over {text_growth.MAX_TEXT >> 20} Mi characters" in PAGE
    assert f"sorting over {text_growth._MAX_ITEMS:,} items" in PAGE
    assert f"over {text_growth._MAX_SLOW:,} characters" in PAGE
    assert f"over {text_growth._MAX_BITS:,} bits" in PAGE
    assert f"over {text_growth._MAX_WRITTEN >> 20} Mi characters" in PAGE
    assert f"at most {sandbox.MAX_SOURCE >> 20} Mi characters" in PAGE
    assert f"{sandbox._PASSES}\ncharacters and one step more" in PAGE


def test_the_limits_are_documented() -> None:
    table = PAGE.split("## Limits")[1].split("\n## ")[0]
    for shown in (
        f"| a line, decompressed | {MAX_LINE_BYTES >> 20} MiB |",
        f"| what a row of Parquet asks | {MAX_ROW_BYTES >> 20} MiB |",
        f"| keys of a row, and of its `body` | {MAX_KEYS:,} |",
        f"| rows | {MAX_ROWS:,} |",
        f"| the whole input, decompressed or decoded | {MAX_UNPACKED_BYTES >> 30} GiB (",
        f"or {USUAL_RATIO} times its stored size",
        f"| columns | {MAX_COLUMNS:,} |",
        f"average of a row group | {page_sizes.MAX_VALUES_A_ROW:,} |",
        f"| a page of Parquet, decompressed | {page_sizes.MAX_PAGE_BYTES >> 20} MiB;",
    ):
        assert shown in table


def test_the_rows_of_the_page_can_be_answered(tmp_path: Path) -> None:
    blocks = "".join(re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))
    options: dict[str, Any] = {"strict": True, "model": "smollm2-135m"}
    done = prepare_lines(tmp_path, *blocks.encode().splitlines(), **options)
    assert [row["custom_id"] for row in done.rows()] == ["a-1", None, "r-1", "r-2"]
    assert [row["prompt"] is None for row in done.rows()] == [False, True, True, False]


def test_the_example_is_sixty_tickets_under_one_system_prompt(tmp_path: Path) -> None:
    done = prepare_file(ROOT / "examples" / "support_tickets.jsonl", tmp_path, strict=True)
    rows = done.rows()
    assert [row["custom_id"] for row in rows] == [f"ticket-{i:04d}" for i in range(1, 61)]
    assert {row["params"]["max_tokens"] for row in rows} == {48}
    systems = {row["messages"][0]["content"] for row in rows}
    assert len(systems) == 1
    assert 450 <= len(systems.pop().split()) <= 500
    assert len({row["messages"][1]["content"] for row in rows}) == 60
    assert {orjson.loads(row["carried:input"])["channel"] for row in rows} == {
        "chat",
        "email",
        "phone",
        "web",
    }
