"""`submit` from Python: the same job as the command line makes, whatever rows are given as."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import (
    InputError,
    Job,
    JobsError,
    KeyReused,
    Settings,
    StateConflict,
    UsageError,
    list_jobs,
    submit,
)
from jobs.layout import input_copy
from tests.support.command_line import CommandLine

ROWS = [{"prompt": f"row {n}", "topic": f"t{n % 3}", "stars": n} for n in range(20)]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}
TABLE = pa.table(COLUMNS)


def copy_of(cli: CommandLine, job: Job) -> list[dict[str, Any]]:
    """The rows as they were stored for the workers."""
    folder = cli.storage.job(job.id)
    found: list[dict[str, Any]] = pq.read_table(folder.at(input_copy(1))).to_pylist()
    return sorted(found, key=lambda row: row["row_index"])


def nothing_is_left(cli: CommandLine) -> bool:
    return not list_jobs() and not list((cli.home / "storage").glob("job_*"))


# ---- options


def test_a_job_is_the_one_that_the_command_line_makes(cli: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    template = tmp_path / "t.jinja"
    template.write_text("About {{ topic }}")
    typed = cli(
        "submit", str(path), "--model", "the-model", "--seed", "5", "--limit", "9",
        "--template", str(template), "--priority", "3", "--row-timeout", "90", "--name", "typed",
        "--system", "Be brief.", "--served-model-name", "other", "--chunk-rows", "7",
        "--max-tokens", "9", "--temperature", "0.5", "--stop", "A", "--stop", "B", "--ignore-eos",
        "--logit-bias", '{"5": -1}', "--response-format", '{"type": "json_object"}',
        "--allowed-token-ids", "1", "--allowed-token-ids", "2",
    )[0].strip()  # fmt: skip

    job = submit(
        path, model="the-model", seed=5, limit=9, template="About {{ topic }}", priority=3,
        row_timeout=90, name="typed", system="Be brief.", served_model_name="other", chunk_rows=7,
        max_tokens=9, temperature=0.5, stop=("A", "B"), ignore_eos=True, logit_bias={5: -1},
        response_format={"type": "json_object"}, allowed_token_ids=range(1, 3),
        strict=None, pooling=None,
    )  # fmt: skip

    with cli.store() as store:
        theirs, ours = store.job(typed), store.job(job.id)
    assert ours.options == theirs.options
    assert ours.fingerprint == theirs.fingerprint is not None
    for name in ("name", "model", "priority", "seed", "total_rows", "chunks_total", "input_uri"):
        assert getattr(ours, name) == getattr(theirs, name), name


def test_objects_may_be_dicts_and_a_template_a_file(cli: CommandLine, tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    template.write_text("About {{ topic }}")
    chats = [{"messages": [{"role": "user", "content": "a"}]}]
    by_file = submit(ROWS, model="m", template=template)
    by_dict = submit(chats, model="m", chat_template_kwargs={"enable_thinking": False})
    by_json = submit(chats, model="m", chat_template_kwargs='{"enable_thinking": false}')
    with cli.store() as store:
        assert store.job(by_file.id).options["template"] == "About {{ topic }}"
        for job in (by_dict, by_json):
            options = store.job(job.id).options
            assert options["chat_template_kwargs"] == {"enable_thinking": False}


@pytest.mark.parametrize(
    "deadline",
    [
        "8h",
        timedelta(hours=8),
        lambda: datetime.now(UTC) + timedelta(hours=8),
        # What the clock shows then, as on a command line, though it may be put forward before.
        lambda: (datetime.now(UTC) + timedelta(hours=8)).astimezone().replace(tzinfo=None),
    ],
    ids=["text", "timedelta", "aware", "naive"],
)
def test_a_deadline_is_a_text_a_duration_or_a_time(cli: CommandLine, deadline: Any) -> None:
    asked = deadline() if callable(deadline) else deadline
    found = submit(ROWS, model="m", deadline=asked).status().deadline_at
    assert found is not None
    assert abs(found - datetime.now(UTC) - timedelta(hours=8)) < timedelta(minutes=5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_token": 4}, "there is no option 'max_token'; did you mean max_tokens?"),
        ({"limit": "5"}, "limit is '5'; it must be a whole number"),
        ({"limit": True}, "limit is True; it must be a whole number"),
        ({"limit": 0}, "limit is 0"),
        ({"max_tokens": "many"}, "max_tokens is 'many'"),
        ({"kind": "guess"}, "kind is 'guess'; it must be one of generate, score, embed"),
        ({"strict": "yes"}, "strict is 'yes'; it must be True or False"),
        ({"row_timeout": "1"}, "row_timeout is '1'; it must be a number"),
        ({"served_model_name": [1]}, "served_model_name is [1]; it must be a list of texts"),
        ({"template": 5}, "template is 5; it must be a text, or the Path of a file"),
        ({"template": " "}, "--template is empty"),
        ({"chat_template_kwargs": 3}, "it must be a dict, or its JSON"),
        ({"early_stopping": "yes"}, "early_stopping is 'yes'"),
        ({"format": "jsonl"}, "format is for files"),
        ({"deadline": timedelta(hours=-1)}, "has passed already"),
        ({"prompt_column": "a", "template": "b"}, "both make the prompt"),
    ],
)
def test_what_cannot_work_is_refused_in_words(
    cli: CommandLine, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError) as refused:
        submit(ROWS, model="m", **options)
    assert said in str(refused.value)
    assert nothing_is_left(cli)


# ---- rows


def as_rows(kind: str) -> Any:
    match kind:
        case "list":
            return ROWS
        case "iterator":
            return iter(ROWS)
        case "table":
            return TABLE
        case "reader":
            return TABLE.to_reader(max_chunksize=7)
        case "pandas":
            return pd.DataFrame(COLUMNS, index=range(100, 120))
        case "polars":
            return pl.DataFrame(COLUMNS)

    class Streamed:
        """What any other library may give."""

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return TABLE.__arrow_c_stream__(requested_schema)

    return Streamed()


@pytest.mark.parametrize(
    "kind", ["list", "iterator", "table", "reader", "pandas", "polars", "stream"]
)
def test_rows_may_be_given_in_many_ways(cli: CommandLine, kind: str) -> None:
    data = as_rows(kind)
    job = submit(data, model="m")
    found = copy_of(cli, job)
    assert [row["prompt"] for row in found] == COLUMNS["prompt"]
    if kind in ("list", "iterator"):
        carried = [json.loads(row["carried:input"]) for row in found]
    else:
        carried = [{name: row[f"carried:{name}"] for name in ("topic", "stars")} for row in found]
        assert [name for name in found[0] if "index" in name] == ["row_index"]
    assert carried == [{"topic": row["topic"], "stars": row["stars"]} for row in ROWS]
    assert job.status().input == f"<{type(data).__name__}>"


def test_types_of_columns_stay_as_they_are(cli: CommandLine) -> None:
    when = pd.to_datetime(["2030-01-31", "2030-02-28"])
    job = submit(pd.DataFrame({"prompt": ["a", "b"], "when": when}), model="m")
    job.cancel()
    assert pa.types.is_timestamp(job.results().schema.field("when").type)
    assert job.results().pandas()["when"].tolist() == list(when)


def test_an_iterator_is_read_no_further_than_is_needed(cli: CommandLine) -> None:
    read = 0

    def endless() -> Iterator[dict[str, str]]:
        nonlocal read
        while True:
            read += 1
            yield {"prompt": "x" * 1000}

    assert submit(endless(), model="m", limit=100).status().rows.total == 100
    assert read < 3000  # what is read at once, of any input


def test_refused_rows_are_told_of_and_stop_no_other(
    cli: CommandLine, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "pagemill.jobs"):
        job = submit([{"prompt": "a"}, {"nothing": 1}], model="m")
    told, doubt = caplog.messages
    assert f"job {job.id}: 1 row cannot be answered" in told
    assert doubt.startswith(f"job {job.id}: no worker has served m yet")
    assert "line 2: the row has neither prompt nor messages" in told
    with pytest.raises(InputError, match="line 2"):
        submit([{"prompt": "a"}, {"nothing": 1}], model="m", strict=True)


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        ([], InputError, "<list> is empty"),
        ({"prompt": "a"}, UsageError, "<dict> holds no rows"),
        (7, UsageError, "<int> holds no rows"),
        (["a"], InputError, "row 1 of <list> is a str; a row is a dict"),
        ([{"prompt": "a"}, {"prompt": {1}}], InputError, "row 2 of <list> cannot be written as"),
        ([{"prompt": "\ud800"}], InputError, "row 1 of <list> cannot be written as JSON"),
        ([{"prompt": "a", "x": [None, math.inf]}], InputError, "JSON has no infinity"),
        ([{"prompt": "a", "x": np.array([-math.inf])}], InputError, "JSON has no infinity"),
        (
            pl.DataFrame({"prompt": pl.Series([{}], dtype=pl.Object)}),
            InputError,
            "'prompt' holds",
        ),
        (
            pl.DataFrame({"prompt": ["a"], "x": pl.Series([1], dtype=pl.Int128)}),
            InputError,
            "<DataFrame> has a column that Arrow cannot hold",
        ),
        (
            pd.DataFrame({"prompt": ["a"], "x": pd.arrays.SparseArray([1])}),
            InputError,
            "Sparse pandas data (column x)",
        ),
        (pl.LazyFrame(COLUMNS), UsageError, ".collect()"),
        (pd.DataFrame({"prompt": ["a", 5]}), InputError, "column prompt with type object"),
        (pd.DataFrame([["a", "b"]], columns=["prompt"] * 2), InputError, "Duplicate column names"),
        (pd.Series(["a"]), UsageError, "<Series> is no table"),
        (pl.Series(["a"]), UsageError, "<Series> is no table"),
        (pa.table({"other": ["a"]}), InputError, "<Table> has neither a prompt nor"),
        (pa.table({"prompt": pa.array([], pa.string())}), InputError, "<Table> has no rows"),
        ("missing.jsonl", InputError, "there is no file missing.jsonl"),
    ],
)
def test_what_holds_no_rows_is_refused_in_words(
    cli: CommandLine, data: Any, error: type[JobsError], said: str
) -> None:
    with pytest.raises(error) as refused:
        submit(data, model="m")
    assert said in str(refused.value)
    assert nothing_is_left(cli)


def test_not_a_number_is_null_in_a_dict(cli: CommandLine) -> None:
    job = submit([{"prompt": "a", "temperature": math.nan, "x": [math.nan, 1e300]}], model="m")
    (row,) = copy_of(cli, job)
    assert (row["params"], row["carried:input"]) == (None, '{"x":[null,1e+300]}')


def test_an_iterator_that_fails_leaves_nothing_behind(cli: CommandLine) -> None:
    def failing() -> Iterator[dict[str, str]]:
        yield {"prompt": "a"}
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        submit(failing(), model="m")
    assert nothing_is_left(cli)


def test_a_temporary_table_is_gone_when_it_is_read(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    submit(TABLE, model="m")
    assert list((tmp_path / "temporary").iterdir()) == []


# ---- the job


def test_the_same_key_gives_the_same_job(cli: CommandLine) -> None:
    first = submit(ROWS, model="m", idempotency_key="k")
    assert submit(iter(ROWS), model="m", idempotency_key="k") == first
    with pytest.raises(KeyReused):
        submit(ROWS[:-1], model="m", idempotency_key="k")
    assert list_jobs() == [first]


def test_settings_name_another_deployment(cli: CommandLine, tmp_path: Path) -> None:
    elsewhere = Settings.from_env({"PAGEMILL_HOME": str(tmp_path / "elsewhere")})
    job = submit(ROWS, model="m", settings=elsewhere)
    assert job.status().rows.total == len(ROWS)
    assert (tmp_path / "elsewhere" / "storage" / job.id).is_dir()
    assert list_jobs(settings=elsewhere) == [job]
    assert list_jobs() == []


def test_a_model_that_is_a_folder_is_named_absolutely(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "config.json").touch()
    monkeypatch.chdir(tmp_path)
    assert submit(ROWS, model=Path("llama")).status().model == str(tmp_path / "llama")


def test_what_the_state_does_not_allow_is_said(cli: CommandLine) -> None:
    job = submit(ROWS, model="m")
    for refused in (job.retry, job.delete):
        with pytest.raises(StateConflict):
            refused()
