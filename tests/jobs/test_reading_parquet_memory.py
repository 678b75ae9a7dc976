"""Rows of Parquet files take bounded memory, however they are encoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.prompts import PromptRules
from jobs.reading import batch_size, parquet
from jobs.reading.blocks import Block
from jobs.reading.opening import open_input
from tests.support.submissions import prepare_table

pytestmark = pytest.mark.quick

LONG = "a long system prompt " * 500  # about 10 kB
ROWS = 400
LIMIT = 200_000


def blocks(path: Path, **rules: Any) -> list[Block]:
    with open_input(str(path), PromptRules(**rules)) as reader:
        return list(reader.blocks())


def messages(i: int) -> list[dict[str, str]]:
    return [{"role": "system", "content": LONG}, {"role": "user", "content": str(i)}]


TABLES = {
    "prompt": pa.table({"prompt": [LONG] * ROWS}),
    "dictionary": pa.table({"prompt": pa.array([LONG] * ROWS).dictionary_encode()}),
    "messages": pa.table({"messages": [messages(i) for i in range(ROWS)]}),
    "large lists": pa.table(
        {
            "messages": pa.array(
                [messages(i) for i in range(ROWS)],
                pa.large_list(pa.struct([("role", pa.string()), ("content", pa.string())])),
            )
        }
    ),
    "parts": pa.table(
        {
            "messages": [
                [{"role": "user", "content": [{"type": "text", "text": LONG}]}] for _ in range(ROWS)
            ]
        }
    ),
    "carried": pa.table({"prompt": [str(i) for i in range(ROWS)], "document": [LONG] * ROWS}),
    "first rows empty": pa.table({"prompt": [None] * 100 + [LONG] * (ROWS - 100)}),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_long_value_that_the_file_holds_once_is_not_decoded_many_times_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(batch_size, "BATCH_BYTES", LIMIT)
    path = tmp_path / "a.parquet"
    pq.write_table(TABLES[kind], path, row_group_size=150)
    assert path.stat().st_size < 100_000
    found = blocks(path)
    assert sum(len(block.rows) for block in found) == ROWS
    assert max(block.size for block in found) <= LIMIT * 1.1
    assert min(len(block.rows) for block in found[:-1]) > 2  # bounded, and not one by one


def test_short_values_are_decoded_in_great_batches(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = [f"{i:06d}" * 50 for i in range(10_000)]  # so many that the dictionary is given up
    table = pa.table({"prompt": texts, "channel": ["mail", "chat"] * 5000})
    pq.write_table(table, path)
    found = blocks(path)
    assert len(found) <= 10
    assert [row.prompt for block in found for row in block.rows] == [t.encode() for t in texts]


def test_a_row_over_the_limit_is_an_error_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "MAX_ROW_BYTES", 1 << 20)
    long = "x" * (1 << 20)
    table = pa.table(
        {
            "prompt": ["a", long + "x", long, None, None],
            "messages": [
                *[None] * 3,
                [{"role": "user", "content": long}],
                [{"role": "user", "content": "b"}],
            ],
            "custom_id": list("12345"),
        }
    )
    done = prepare_table(tmp_path, table)
    assert done.errors() == [(2, "line_too_long", None), (4, "line_too_long", None)]
    assert "the limit is 1 MiB" in done.rejected()[0]["error"]["message"]
    assert [row["custom_id"] for row in done.rejected()] == ["2", "4"]
    assert [row["custom_id"] for row in done.rows()] == ["1", "3", "5"]
