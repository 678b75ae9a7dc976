"""What decides the answers of a job, in one hash: in SQL, in the manifest and in the files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from jobs.errors import UsageError
from jobs.finalize import drive
from jobs.fingerprint import seed_of_key
from jobs.manifest import read_manifest
from jobs.parameters import CHECKS, MAX_SEED
from jobs.retry import plan_retry
from jobs.storage import Storage
from jobs.store import Store
from tests.support.played_job import PlayedJob
from tests.support.submissions import Prepared, prepare_lines

pytestmark = pytest.mark.quick

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
SAME = {"seed": 1, "system": "S", "sampling": {"temperature": 0.5}}

CHANGES: dict[str, dict[str, Any]] = {
    "model": {"model": "other"},
    "seed": {"seed": 2},
    "system": {"system": "T"},
    "template": {"template": "{{ q }}"},
    "prompt_column": {"prompt_column": "q"},
    "limit": {"limit": 2},
    "row_timeout": {"row_timeout": 60.0},
    "chunk_rows": {"chunk_rows": 9},
    "served_model_names": {"served_model_names": ["gpt"]},
    "chat_template_kwargs": {"chat_template_kwargs": {"enable_thinking": False}},
}
SAMPLING = {
    "max_tokens": 7,
    "temperature": 0.25,
    "top_k": 3,
    "top_p": 0.5,
    "n": 2,
    "logprobs": 1,
    "stop": "x",
    "ignore_eos": True,
}


def prepared(folder: Path, *rows: Any, **options: Any) -> Prepared:
    lines = rows or ({**CHAT, "q": "how?"}, b"no JSON", CHAT)
    return prepare_lines(folder, *lines, **{**SAME, **options})


def fingerprint(folder: Path, *rows: Any, **options: Any) -> str:
    found = prepared(folder, *rows, **options).job.fingerprint
    assert found is not None
    return found


def test_equal_submissions_have_equal_ones(tmp_path: Path) -> None:
    first, second = (fingerprint(tmp_path / name) for name in ("a", "b"))
    assert first == second
    assert len(bytes.fromhex(first)) == 32


def test_it_is_the_hash_that_the_page_describes(tmp_path: Path) -> None:
    done = prepared(tmp_path)
    files = ("_input/v1.parquet", "_input/v1-rejected-w00000.parquet")
    facts = {
        "input": [hashlib.sha256(done.folder.read(path)).hexdigest() for path in files],
        "model": "tiny",
        "options": done.job.options,
        "seed": 1,
    }
    told = orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)
    assert done.job.fingerprint == hashlib.sha256(told).hexdigest()


@pytest.mark.parametrize("name", CHANGES)
def test_each_option_changes_it(tmp_path: Path, name: str) -> None:
    change = CHANGES[name]
    # A template and a column make prompts of rows that have no messages.
    rows = ({"q": "how?"}, {"q": "why?"}, {"q": "who?"})
    asked = rows if name in ("template", "prompt_column") else ()
    before = {"prompt_column": "q"} if name == "template" else {}
    if name == "prompt_column":
        before = {"template": "{{ q }}"}
        change = {**change, "template": None}
    if name == "template":
        change = {**change, "prompt_column": None}
    assert fingerprint(tmp_path, *asked, **{**before, **change}) != fingerprint(
        tmp_path, *asked, **before
    )


@pytest.mark.parametrize("name", SAMPLING)
def test_each_sampling_parameter_changes_it(tmp_path: Path, name: str) -> None:
    changed = {"temperature": 0.5, name: SAMPLING[name]}
    assert fingerprint(tmp_path, sampling=changed) != fingerprint(tmp_path)


def test_no_option_was_forgotten(tmp_path: Path) -> None:
    assert prepared(tmp_path).job.options.keys() - {"sampling"} <= CHANGES.keys()
    assert SAMPLING.keys() <= CHECKS.keys()


@pytest.mark.parametrize(
    "rows",
    [
        ({**CHAT, "q": "how?"}, b"no JSON"),
        ({**CHAT, "q": "how!"}, b"no JSON", CHAT),
        ({**CHAT, "q": "how?"}, b"no JSON", {**CHAT, "custom_id": "a"}),
        ({**CHAT, "q": "how?"}, {**CHAT, "temperature": 9000}, CHAT),
        (CHAT, b"no JSON", {**CHAT, "q": "how?"}),
    ],
)
def test_each_change_of_the_input_changes_it(tmp_path: Path, rows: tuple[Any, ...]) -> None:
    assert fingerprint(tmp_path, *rows) != fingerprint(tmp_path)


def test_when_and_where_it_is_answered_changes_nothing(tmp_path: Path) -> None:
    other = fingerprint(tmp_path, name="tickets", priority=3, idempotency_key="k")
    assert other == fingerprint(tmp_path)


def test_a_key_gives_the_seed_that_was_not_given(tmp_path: Path) -> None:
    seeds = [prepared(tmp_path, seed=None, idempotency_key=k).job.seed for k in ("a", "a", "b")]
    assert seeds == [seed_of_key("a"), seed_of_key("a"), seed_of_key("b")]
    assert seeds[0] != seeds[2]
    assert all(0 <= seed <= MAX_SEED for seed in seeds)


@pytest.mark.parametrize("key", ["", "a\nb", "\ud800", "k" * 201])
def test_a_key_is_short_and_printable(tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageError, match="1 to 200 printable characters"):
        prepared(tmp_path, idempotency_key=key)


def test_it_is_in_sql_in_the_manifest_and_in_every_published_file(
    store: Store, tmp_path: Path
) -> None:
    new = prepared(tmp_path, model="the-model").job
    assert store.insert_job(new).fingerprint == new.fingerprint == store.job(new.id).fingerprint
    storage = Storage(str(tmp_path / "storage"))
    job = PlayedJob(store, storage, new.id, failing={0})
    job.finish_all()
    drive(store, storage, "test")
    store.reopen(job.id, *plan_retry(store, storage, job.id))
    job.failing = set()
    job.finish_all()
    drive(store, storage, "test")
    folder = storage.job(new.folder)
    for version in (1, 2):
        assert read_manifest(folder, version)["fingerprint"] == new.fingerprint
        (path,) = folder.files(f"v{version}", "*.parquet")
        metadata = pq.read_schema(folder.at(path)).metadata
        assert metadata[b"pagemill.fingerprint"].decode() == new.fingerprint
