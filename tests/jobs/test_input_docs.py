"""What docs/input.md and the example promise."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest

from jobs.messages import ROLES
from jobs.parameters import CHECKS
from tests.support.submissions import prepare_file, prepare_lines

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "input.md").read_text(encoding="utf-8")
SOURCES = [
    *(ROOT / "jobs" / "reading").glob("*.py"),
    *(ROOT / "jobs" / name for name in ("rows.py", "messages.py", "parameters.py", "template.py")),
]


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


def test_the_rows_of_the_page_can_be_answered(tmp_path: Path) -> None:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    done = prepare_lines(tmp_path, *block.encode().splitlines(), strict=True)
    assert [row["custom_id"] for row in done.rows()] == ["a-1", None]


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
