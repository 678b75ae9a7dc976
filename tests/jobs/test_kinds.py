"""Rows and options of jobs that score and embed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.errors import InputError, UsageError
from jobs.kinds import JobKind
from jobs.parts import answered, job_schema
from jobs.records import ContinuationScore, RowResult
from jobs.result_table import result_table
from jobs.schema import EMBEDDINGS, kind_of_copy
from tests.support.submissions import Prepared, prepare_lines, prepare_table

SCORE, EMBED = {"kind": JobKind.SCORE}, {"kind": JobKind.EMBED}


def kinds(done: Prepared) -> list[tuple[Any, Any, Any]]:
    return [(r["prompt"], r["messages"], r["continuations"]) for r in done.rows()]


def test_rows_with_choices(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "hi"}]
    done = prepare_lines(
        tmp_path,
        {"prompt": "2 + 2 =", "choices": [" 4", " 5"], "label": 0},
        {"messages": chat, "continuations": ["yes"]},
        {"prompt": "", "choices": ["a text alone"]},
        **SCORE,
    )
    assert kinds(done) == [
        ("2 + 2 =", None, [" 4", " 5"]),
        (None, chat, ["yes"]),
        ("", None, ["a text alone"]),
    ]
    with done.copy as file:
        assert kind_of_copy(file.schema_arrow) is JobKind.SCORE
    assert json.loads(done.rows()[0]["carried:input"]) == {"label": 0}
    assert done.job.options["kind"] == "score"


@pytest.mark.parametrize(
    ("row", "code", "field"),
    [
        ({"prompt": "a"}, "missing_choices", "choices"),
        ({"prompt": "a", "choices": None}, "missing_choices", "choices"),
        ({"prompt": "a", "choices": []}, "invalid_choices", "choices"),
        ({"prompt": "a", "choices": ["x"] * 257}, "invalid_choices", "choices"),
        ({"prompt": "a", "choices": "x"}, "wrong_type", "choices"),
        ({"prompt": "a", "choices": ["x", 5]}, "wrong_type", "choices[1]"),
        ({"prompt": "a", "continuations": ["x", ""]}, "empty_continuation", "continuations[1]"),
        ({"prompt": "", "choices": ["x"], "continuations": ["x"]},
         "choices_and_continuations", None),
        ({"choices": ["x"]}, "missing_prompt", "prompt"),
        ({"prompt": "a", "choices": ["x"], "top_p": 1}, "unsupported_parameter", "top_p"),
        ({"prompt": "a", "choices": ["x"], "max_tokens": 5}, "unsupported_parameter", "max_tokens"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_scored_is_one_error_row(
    tmp_path: Path, row: dict[str, Any], code: str, field: str | None
) -> None:
    done = prepare_lines(tmp_path, {"prompt": "a", "choices": ["x"]}, row, **SCORE)
    assert done.errors() == [(2, code, field)]
    (rejected,) = done.rejected()
    assert rejected["scores"] is rejected["best"] is rejected["best_normalized"] is None
    assert len(done.rows()) == 1


def test_a_table_with_choices(tmp_path: Path) -> None:
    table = pa.table(
        {
            "prompt": ["a", "b"],
            "choices": [["x", "y"], ["z"]],
            "scores": [1.0, 2.0],
            "best": ["u", "v"],
        }
    )
    done = prepare_table(tmp_path, table, **SCORE)
    assert kinds(done) == [("a", None, ["x", "y"]), ("b", None, ["z"])]
    schema = job_schema(done.folder, done.job.plan.input_path)
    assert schema.names[-5:] == ["scores", "best", "best_normalized", "input.scores", "input.best"]
    with pytest.raises(InputError, match="must be list<string>"):
        prepare_table(tmp_path / "2", pa.table({"prompt": ["a"], "choices": ["x"]}), **SCORE)


def test_choices_are_data_of_other_jobs(tmp_path: Path) -> None:
    table = pa.table({"prompt": ["a"], "continuations": [["x"]], "embedding": ["mine"]})
    done = prepare_table(tmp_path, table)
    assert job_schema(done.folder, done.job.plan.input_path).names[-2:] == [
        "continuations", "embedding",
    ]  # fmt: skip
    assert "kind" not in done.job.options


def test_rows_to_embed(tmp_path: Path) -> None:
    done = prepare_lines(
        tmp_path,
        {"prompt": "one"},
        {"input": "two", "id": 7},
        {"custom_id": "a", "method": "POST", "url": "/v1/embeddings",
         "body": {"model": "tiny", "input": ["three"], "encoding_format": "float"}},
        **EMBED, pooling="mean", normalize=False,
    )  # fmt: skip
    assert [row["prompt"] for row in done.rows()] == ["one", "two", "three"]
    assert [row["custom_id"] for row in done.rows()] == [None, None, "a"]
    wanted = {"kind": "embed", "pooling": "mean", "normalize": False}
    assert done.job.options.items() >= wanted.items()


@pytest.mark.parametrize(
    ("row", "code", "field"),
    [
        ({"messages": [{"role": "user", "content": "a"}]}, "not_a_text", "messages"),
        ({"prompt": "a", "input": "b"}, "prompt_and_input", None),
        ({"input": ""}, "empty_prompt", "input"),
        ({"input": ["a"]}, "wrong_type", "input"),
        ({"input": "a", "max_tokens": 5}, "unsupported_parameter", "max_tokens"),
        ({"text": "a"}, "missing_prompt", "prompt"),
    ],
)
def test_a_row_that_cannot_be_embedded_is_one_error_row(
    tmp_path: Path, row: dict[str, Any], code: str, field: str | None
) -> None:
    done = prepare_lines(tmp_path, {"prompt": "a"}, row, **EMBED)
    assert done.errors() == [(2, code, field)]
    assert done.rejected()[0]["embedding"] is None


@pytest.mark.parametrize(
    ("url", "body", "code", "field"),
    [
        (EMBEDDINGS, {"input": ["a", "b"]}, "unsupported_content", "body.input"),
        (EMBEDDINGS, {"input": [5, 6]}, "unsupported_content", "body.input"),
        (EMBEDDINGS, {"prompt": "a"}, "unknown_field", "body.prompt"),
        (EMBEDDINGS, {}, "missing_prompt", "body.input"),
        (EMBEDDINGS, {"input": "a", "dimensions": 8}, "unsupported_parameter",
         "body.dimensions"),
        (EMBEDDINGS, {"input": "a", "encoding_format": "base64"}, "unsupported_parameter",
         "body.encoding_format"),
        (EMBEDDINGS, {"input": "a", "top_p": 1}, "unsupported_parameter", "body.top_p"),
        ("/v1/completions", {"prompt": "a"}, "unsupported_url", "url"),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_embedded_is_one_error_row(
    tmp_path: Path, url: str, body: dict[str, Any], code: str, field: str
) -> None:
    line = {"custom_id": "a", "method": "POST", "url": url, "body": body}
    done = prepare_lines(tmp_path, {"prompt": "a"}, line, **EMBED)
    assert done.errors() == [(2, code, field)]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({**SCORE, "sampling": {"temperature": 1.0}}, "--temperature"),
        ({**EMBED, "sampling": {"max_tokens": 1}}, "--max-tokens"),
        ({**EMBED, "system": "Be brief."}, "--system"),
        ({**EMBED, "pooling": "max"}, "pooling"),
        ({**SCORE, "pooling": "mean"}, "--pooling"),
        ({"normalize": False}, "--no-normalize"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    tmp_path: Path, options: dict[str, Any], word: str
) -> None:
    with pytest.raises(UsageError, match=word):
        prepare_lines(tmp_path, {"prompt": "a", "choices": ["x"]}, **options)


def test_the_kind_is_in_the_fingerprint(tmp_path: Path) -> None:
    def fingerprint(name: str, **options: Any) -> str | None:
        row = {"prompt": "a"}
        return prepare_lines(tmp_path / name, row, seed=1, **options).job.fingerprint

    found = [
        fingerprint("generate"),
        fingerprint("embed", **EMBED),
        fingerprint("mean", **EMBED, pooling="mean"),
        fingerprint("long", **EMBED, normalize=False),
    ]
    assert len(set(found)) == 4


def test_outcomes_become_columns_of_the_kind(tmp_path: Path) -> None:
    from array import array

    row = {"prompt": "a", "choices": ["x", "y"]}
    done = prepare_lines(tmp_path, row, **SCORE)
    with done.copy as file:
        rows = file.read()
    scores = (
        ContinuationScore(-1.5, True, array("f", [-1.0, -0.5])),
        ContinuationScore(-2.0, False, array("f", [-2.0])),
    )
    result = RowResult(0, finish_reason="stop", scores=scores, best=0, best_normalized=1)
    (found,) = answered(rows, result_table([result]), "tiny").to_pylist()
    assert found["scores"] == [
        {"logprob": -1.5, "tokens": 2, "is_greedy": True, "token_logprobs": [-1.0, -0.5]},
        {"logprob": -2.0, "tokens": 1, "is_greedy": False, "token_logprobs": [-2.0]},
    ]
    assert (found["best"], found["best_normalized"], found["endpoint"]) == (0, 1, None)
    assert "embedding" not in found
    embedded = prepare_lines(tmp_path / "2", {"input": "a"}, {"input": "b"}, **EMBED)
    with embedded.copy as file:
        rows = file.read()
    vector = RowResult(0, finish_reason="stop", embedding=array("f", [0.5, -0.25]))
    table = answered(
        rows, result_table([vector, replace(vector, row_index=1, embedding=None)]), "t"
    )
    assert table["embedding"].to_pylist() == [[0.5, -0.25], None]
    assert table["endpoint"].to_pylist() == ["/v1/embeddings"] * 2
    assert "scores" not in table.schema.names
