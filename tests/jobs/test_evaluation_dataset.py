"""The rows of an evaluation: from which files, in which order, and when they are the same."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.cli.deployment import Deployment
from jobs.errors import InputChanged, InputError
from jobs.evaluation.dataset import DatasetInfo, describe
from jobs.evaluation.inputs import find
from jobs.evaluation.keys import row_content
from jobs.evaluation.spec import EvaluationSpec
from jobs.settings import Settings
from jobs.storage import Storage
from jobs.store import Store

pytestmark = pytest.mark.quick

ROWS = [
    {"custom_id": f"q{n}", "prompt": f"What is {n}?", "target": [str(n)], "topic": "ab"[n % 2]}
    for n in range(10)
]


@pytest.fixture
def deployment(store: Store, tmp_path: Path) -> Deployment:
    storage = Storage(str(tmp_path / "storage"))
    return Deployment(Settings.from_env(), store, storage)


def spec_of(*inputs: Path | str, **more: Any) -> EvaluationSpec:
    scorers = [{"scorer": "exact"}]
    return EvaluationSpec.from_json(
        {"inputs": [str(path) for path in inputs], "model": "m", "scorers": scorers, **more}
    )


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    text = "".join(f"{json.dumps(row)}\n" for row in rows).rstrip("\n")  # no last line break
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def table(path: Path, rows: list[dict[str, Any]], rows_a_group: int | None = None) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=rows_a_group)
    return path


@pytest.fixture
def told(deployment: Deployment, tmp_path: Path) -> DatasetInfo:
    return describe(deployment, spec_of(lines(tmp_path / "told.jsonl", ROWS), slices=["topic"]))


def test_it_is_described(told: DatasetInfo, tmp_path: Path) -> None:
    assert (told.rows, told.refused, told.targets) == (10, 0, 10)
    assert told.columns == ("target", "topic")
    assert told.files == (str(tmp_path / "told.jsonl"),)


def test_the_hash_is_of_what_the_rows_hold(
    deployment: Deployment, told: DatasetInfo, tmp_path: Path
) -> None:
    lines(tmp_path / "part-a.jsonl.gz", ROWS[:4])
    lines(tmp_path / "part-b.jsonl", ROWS[4:])
    table(tmp_path / "whole.parquet", ROWS, 3)
    table(tmp_path / "piece-1.parquet", ROWS[:7])
    table(tmp_path / "piece-2.parquet", ROWS[7:])
    for inputs in (
        [tmp_path / "part-*"],
        [tmp_path / "part-b.jsonl", tmp_path / "part-a.jsonl.gz"],
        [tmp_path / "whole.parquet"],
        [f"{tmp_path.as_uri()}/**/piece-[0-9].parquet"],
        [tmp_path / "piece-2.parquet", tmp_path / "piece-?.parquet"],
    ):
        assert describe(deployment, spec_of(*inputs)).hash == told.hash, inputs


def test_what_a_job_says_to_all_rows_is_no_part_of_the_hash(
    deployment: Deployment, told: DatasetInfo, tmp_path: Path
) -> None:
    submit = {"system": "Be brief.", "max_tokens": 3, "temperature": 0}
    asked = spec_of(tmp_path / "told.jsonl", submit=submit)
    assert describe(deployment, asked).hash == told.hash


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": "What is it?"},
        {"custom_id": "another"},
        {"target": ["4"]},
        {"topic": "c"},
        {"max_tokens": 5},
        {"prompt": ""},
    ],
)
def test_any_change_of_a_row_changes_the_hash(
    deployment: Deployment, told: DatasetInfo, tmp_path: Path, change: dict[str, Any]
) -> None:
    changed = lines(tmp_path / "changed.jsonl", [*ROWS[:3], ROWS[3] | change, *ROWS[4:]])
    assert describe(deployment, spec_of(changed)).hash != told.hash


def test_the_order_counts_and_a_limit_too(
    deployment: Deployment, told: DatasetInfo, tmp_path: Path
) -> None:
    turned = lines(tmp_path / "turned.jsonl", ROWS[::-1])
    assert describe(deployment, spec_of(turned)).hash != told.hash
    longer = lines(tmp_path / "longer.jsonl", [*ROWS, {"prompt": "More?"}])
    assert describe(deployment, spec_of(longer, submit={"limit": 10})).hash == told.hash


def test_no_file_fits(deployment: Deployment, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no file fits the pattern .*evals/\*\.parquet"):
        describe(deployment, spec_of(tmp_path / "evals" / "*.parquet"))


def test_a_name_with_brackets_is_no_pattern(deployment: Deployment, tmp_path: Path) -> None:
    odd = lines(tmp_path / "rows[1].jsonl", ROWS)
    assert describe(deployment, spec_of(odd)).rows == 10


def test_formats_are_not_mixed(deployment: Deployment, tmp_path: Path) -> None:
    mixed = [lines(tmp_path / "a.jsonl", ROWS), table(tmp_path / "b.parquet", ROWS)]
    with pytest.raises(InputError, match=r"b\.parquet is Parquet, and .*a\.jsonl is not"):
        describe(deployment, spec_of(*mixed))


def test_stdin_could_not_be_read_again(deployment: Deployment) -> None:
    with pytest.raises(InputError, match="cannot read stdin"):
        describe(deployment, spec_of("-"))


def test_columns_that_are_not_there_are_named(deployment: Deployment, tmp_path: Path) -> None:
    rows = lines(tmp_path / "rows.jsonl", ROWS)
    with pytest.raises(InputError, match=r"no row of .* has a column 'answer'.*--target.*topic"):
        describe(deployment, spec_of(rows, target="answer"))
    with pytest.raises(InputError, match="a column 'lang' to slice by; it has: target, topic"):
        describe(deployment, spec_of(rows, slices=["lang"]))
    with pytest.raises(InputError, match="'tpic' to slice by; did you mean topic"):
        describe(deployment, spec_of(rows, slices=["tpic"]))


@pytest.mark.parametrize("write", [lines, table])
def test_the_first_reasons_are_told_if_no_row_can_be_answered(
    deployment: Deployment, tmp_path: Path, write: Any
) -> None:
    unit = "line" if write is lines else "row"
    bad = [{"prompt": "Hi", "temperature": -n} for n in range(1, 9)]
    some, more = write(tmp_path / "a.data", bad[:2]), write(tmp_path / "b.data", bad[2:])
    with pytest.raises(InputError, match=r"no row of .*a.data can be answered") as caught:
        describe(deployment, spec_of(some))
    said = str(caught.value).splitlines()
    assert [text.partition(":")[0] for text in said[1:]] == [f"  {unit} 1", f"  {unit} 2"]
    assert "temperature" in said[1]
    with pytest.raises(InputError, match=r"a.data and 1 more can be answered") as caught:
        describe(deployment, spec_of(some, more))
    told = [text.partition(":")[0].strip() for text in str(caught.value).splitlines()[1:]]
    assert told == [
        f"{f}, {unit} {n}" for f, n in zip([some] * 2 + [more] * 3, [1, 2, 1, 2, 3], strict=True)
    ]


def test_rows_without_a_prompt_name_both_ways_to_one(
    deployment: Deployment, tmp_path: Path
) -> None:
    rows = [{"question": "Why?", "target": "so"}]
    for path in (lines(tmp_path / "rows.jsonl", rows), table(tmp_path / "rows.parquet", rows)):
        with pytest.raises(InputError, match=r"(?s)question.*--prompt-column.*--template"):
            describe(deployment, spec_of(path))


def test_a_file_that_is_written_has_another_stamp(tmp_path: Path) -> None:
    rows = lines(tmp_path / "rows.jsonl", ROWS)
    inputs = find([str(rows)])
    before = inputs.stamp()
    assert inputs.stamp() == before
    lines(rows, ROWS[1:])
    assert inputs.stamp() != before


def test_a_file_that_is_written_while_another_is_read(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (lines(tmp_path / f"{name}.jsonl", ROWS[:1]) for name in "ab")
    contents: list[bytes] = []

    def content(**given: Any) -> bytes:
        contents.append(row_content(**given))
        if len(contents) == 2:  # the second file's only row
            lines(first, ROWS[:3])
        return contents[-1]

    monkeypatch.setattr("jobs.evaluation.dataset.row_content", content)
    with pytest.raises(InputChanged, match=r"a.jsonl and 1 more was written while it was read"):
        describe(deployment, spec_of(first, second))
    assert len(contents) == 2
    monkeypatch.setattr("jobs.evaluation.dataset.row_content", lambda **_: _grown(second))
    with pytest.raises(InputChanged, match=f"{second} was written or replaced"):
        describe(deployment, spec_of(second))


def _grown(path: Path) -> bytes:
    path.write_bytes(path.read_bytes() + b"\n")
    return b""


def test_a_bare_prompt_is_the_chat_that_a_system_message_makes_of_it() -> None:
    of_row = {"custom_id": None, "continuations": None}
    bare = row_content(prompt="Hi", messages=None, **of_row)  # type: ignore[arg-type]
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    text = json.dumps(chat)
    given = dataclasses.asdict(_Messages(text))
    assert row_content(prompt=None, system="Be brief.", **given) == bare
    assert row_content(prompt=None, system=None, **given) != bare


@dataclasses.dataclass
class _Messages:
    messages: str
    custom_id: str | None = None
    continuations: str | None = None
