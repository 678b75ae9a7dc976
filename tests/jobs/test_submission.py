"""From an input and options to a job that can be queued."""

from __future__ import annotations

import json
import math
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import submission
from jobs.errors import InputError, JobsError, StorageError, UsageError
from jobs.parameters import MAX_SEED
from jobs.reading.custom_ids import CustomIds
from jobs.storage import Storage
from jobs.storage_errors import MARKER
from jobs.submission import Progress, Submission, new_job_id, prepare
from tests.support.submissions import json_lines, prepare_file, prepare_lines

pytestmark = pytest.mark.quick


def test_what_was_asked_is_frozen_in_the_job(tmp_path: Path) -> None:
    deadline = datetime(2100, 1, 1, tzinfo=UTC)
    done = prepare_lines(
        tmp_path,
        {"q": "hi"},
        name="tickets",
        sampling={"temperature": 1, "top_k": None, "stop": "x"},
        chat_template_kwargs={"enable_thinking": False},
        served_model_names=["gpt-4o"],
        system="S",
        prompt_column="q",
        limit=5,
        seed=3,
        priority=2,
        deadline_at=deadline,
        row_timeout=2.5,
        chunk_rows=7,
    )
    job = done.job
    assert job.options == {
        "sampling": {"temperature": 1.0, "stop": ["x"]},
        "chat_template_kwargs": {"enable_thinking": False},
        "served_model_names": ["gpt-4o"],
        "system": "S",
        "template": None,
        "prompt_column": "q",
        "limit": 5,
        "row_timeout": 2.5,
        "chunk_rows": 7,
    }
    assert json.loads(json.dumps(job.options)) == job.options
    assert (job.name, job.model, job.seed, job.priority) == ("tickets", "tiny", 3, 2)
    assert (job.deadline_at, job.folder) == (deadline, job.id)
    assert job.input_uri == str(tmp_path / "input.jsonl")


def test_a_seed_is_drawn_where_none_is_given(tmp_path: Path) -> None:
    seeds = {prepare_lines(tmp_path, {"prompt": "a"}).job.seed for _ in range(3)}
    assert len(seeds) == 3
    assert all(0 <= seed <= MAX_SEED for seed in seeds)


def test_ids_sort_by_time() -> None:
    ids = []
    for _ in range(5):
        ids.append(new_job_id())
        before = time.time_ns() // 1_000_000
        while time.time_ns() // 1_000_000 == before:
            pass
    assert ids == sorted(ids)
    assert all(re.fullmatch(r"job_[a-z2-7]{20}", job_id) for job_id in ids)
    assert len({new_job_id() for _ in range(1000)}) == 1000


def test_a_relative_path_and_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines({"prompt": "a"}))
    monkeypatch.chdir(tmp_path)
    assert prepare_file("a.jsonl", tmp_path / "s").job.input_uri == str(tmp_path / "a.jsonl")
    assert submission._uri("s3://key:secret@bucket/a") == "s3://key:***@bucket/a"
    signed = "https://host/a.jsonl?X-Amz-Expires=9&X-Amz-Signature=secret&sig=secret"
    assert submission._uri(signed) == (
        "https://host/a.jsonl?X-Amz-Expires=***&X-Amz-Signature=***&sig=***"
    )
    assert submission._uri("-") == "-"


def test_a_later_change_of_the_input_changes_nothing(tmp_path: Path) -> None:
    done = prepare_lines(tmp_path, {"prompt": "before"})
    (tmp_path / "input.jsonl").write_bytes(json_lines({"prompt": "after"}))
    assert [row["prompt"] for row in done.rows()] == ["before"]


def test_a_limit_takes_the_first_rows(tmp_path: Path) -> None:
    lines = [{"prompt": str(i)} for i in range(5000)]
    done = prepare_lines(tmp_path, b"bad", *lines, limit=3001)
    assert done.job.plan.total_rows == 3001
    assert done.job.plan.rejected == 1
    assert done.rows()[-1]["prompt"] == "2999"
    for limit in (9999, 2**63 - 1):
        assert prepare_lines(tmp_path, *lines, limit=limit).job.plan.total_rows == 5000


def test_variables_of_the_chat_template_need_a_chat(tmp_path: Path) -> None:
    kwargs = {"chat_template_kwargs": {"enable_thinking": False}}
    with pytest.raises(InputError, match="has no chats"):
        prepare_lines(tmp_path, {"prompt": "a"}, **kwargs)
    prepare_lines(tmp_path, {"prompt": "a"}, system="S", **kwargs)


def test_strict_refuses_one_bad_row(tmp_path: Path) -> None:
    lines: list[Any] = [{"prompt": "a"}, b"bad", {"prompt": "b"}]
    assert prepare_lines(tmp_path, *lines).job.plan.rejected == 1
    with pytest.raises(InputError, match=r"(?s)without --strict.*line 2: not JSON.*invalid_json"):
        prepare_lines(tmp_path, *lines, strict=True)
    assert prepare_lines(tmp_path, lines[0], strict=True).job.plan.total_rows == 1


OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"model": ""}, "no model"),
    ({"limit": 0}, "limit is 0"),
    ({"limit": 2**63}, "limit is 9223372036854775808"),
    ({"sampling": {"n": 129}}, "n is 129; it must be from 1 to 128"),
    ({"sampling": {"logprobs": 21}}, "logprobs is 21; it must be from 0 to 20"),
    ({"chat_template_kwargs": {"tools": []}}, "has 'tools', which is no variable"),
    ({"chat_template_kwargs": {"a": object()}}, "cannot be written as JSON"),
    ({"chat_template_kwargs": {"a": "\udcff"}}, "cannot be written as JSON"),
    ({"seed": -1}, "seed is -1"),
    ({"seed": 2**63}, "seed is 9223372036854775808"),
    ({"chunk_rows": 257}, "chunk_rows is 257"),
    ({"row_timeout": 0}, "row_timeout is 0; it must be over 0 and at most 31,622,400 seconds"),
    ({"row_timeout": -1.5}, "row_timeout is -1.5"),
    ({"row_timeout": math.nan}, "row_timeout is nan"),
    ({"row_timeout": math.inf}, "row_timeout is inf"),
    ({"sampling": {"temperature": -1}}, "temperature is -1"),
    ({"prompt_column": "a", "template": "b"}, "use one of them"),
    ({"prompt_column": "seed"}, "a meaning of its own"),
    ({"system": " "}, "--system is empty"),
    ({"template": ""}, "--template is empty"),
    ({"system": "\udcff"}, "--system is not UTF-8"),
    ({"template": "\n{{ x"}, "line 2 of the template"),
    ({"deadline_at": datetime(2100, 1, 1)}, "no time zone"),  # noqa: DTZ001
    ({"input_format": "csv"}, "must be jsonl or parquet"),
]


@pytest.mark.parametrize(("options", "said"), OPTIONS)
def test_options_that_cannot_work(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        prepare_lines(tmp_path, {"prompt": "a"}, **options)
    assert list((tmp_path / "storage").glob("*")) == []


def test_a_template_error_of_every_row_refuses_the_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'nope' is undefined \(the row has: q\)"):
        prepare_lines(tmp_path, {"q": "a"}, template="{{ nope }}")


def test_a_custom_id_that_is_used_twice(tmp_path: Path) -> None:
    rows: list[Any] = [{"prompt": f"{i}", "custom_id": f"id-{i}"} for i in range(3000)]
    rows[2500]["custom_id"] = "id-7"
    rows[2600]["custom_id"] = "id-7"
    rows[2700]["custom_id"] = "id-3"
    with pytest.raises(InputError, match="custom_id 'id-7' is used twice, in lines 8 and 2501"):
        prepare_lines(tmp_path, *rows)
    assert [path.name for path in (tmp_path / "storage").glob("*")] == [MARKER]


def test_refused_rows_and_integers_count_as_uses_of_an_id(tmp_path: Path) -> None:
    bad = {"prompt": "", "custom_id": "7"}
    with pytest.raises(InputError, match="custom_id '7' is used twice, in lines 1 and 3"):
        prepare_lines(tmp_path, bad, {"prompt": "a"}, {"prompt": "b", "custom_id": 7})
    with pytest.raises(InputError, match="in lines 1 and 2"):
        prepare_lines(tmp_path, bad, bad, {"prompt": "a"})


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcdefgh"), max_size=12), st.randoms())
def test_the_first_repetition_is_found_in_any_order(ids: list[str], random: Any) -> None:
    seen = CustomIds()
    for line, custom_id in enumerate(ids):
        seen.add(custom_id, line)
    expected = None
    for line, custom_id in enumerate(ids):
        if custom_id in ids[:line]:
            expected = (custom_id, ids.index(custom_id), line)
            break
    lines = list(enumerate(ids))
    random.shuffle(lines)
    assert seen.duplicate(seen.suspects(), [(i, line) for line, i in lines]) == expected


def test_equal_hashes_of_different_ids_are_no_duplicate() -> None:
    suspects = frozenset({hash("a"), hash("b")})
    assert CustomIds.duplicate(suspects, [("a", 1), ("b", 2), (None, 3)]) is None


def test_progress_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(json_lines(b"bad", *({"prompt": str(i)} for i in range(5000))))
    told: list[Progress] = []
    prepare(Submission(str(path), "m"), Storage(str(tmp_path / "s")), told.append)
    assert [p.rows for p in told] == [2048, 4096, 5001]
    assert told[-1] == Progress(5001, 1, path.stat().st_size, path.stat().st_size)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_submit_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(json_lines({"prompt": "a"}))

    def interrupt(_: Progress) -> None:
        raise error

    with pytest.raises(error):
        prepare(Submission(str(path), "m"), Storage(str(tmp_path / "s")), interrupt)
    assert [path.name for path in (tmp_path / "s").glob("*")] == [MARKER]


def test_one_after_the_input_was_read_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(submission, "job_fingerprint", interrupt)
    with pytest.raises(KeyboardInterrupt):
        prepare_lines(tmp_path, b'{"prompt": "a"}')
    assert not list(tmp_path.rglob("job_*"))


def test_a_storage_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "storage").write_text("a file")
    with pytest.raises(StorageError, match="there is something else of that name"):
        prepare_lines(tmp_path, {"prompt": "a"})


def test_every_failure_is_an_error_of_ours() -> None:
    assert issubclass(InputError, JobsError)
    assert (InputError.exit_code, UsageError.exit_code) == (65, 64)


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": {"stop": ["ok", "\udcff"]}},
        {"sampling": {"stop": "\udcff"}},
        {"system": "\udcff"},
        {"name": "\udcff"},
        {"served_model_names": ["ok", "\udcff"]},
        {"priority": 2**31},
    ],
)
def test_options_that_nobody_could_write_down_are_refused(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=r"is not UTF-8|at most 32 bits"):
        prepare_lines(tmp_path, {"prompt": "hi"}, **options)
