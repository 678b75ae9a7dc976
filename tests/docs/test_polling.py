"""Every example of docs/polling.md is run as it stands there, on each database that it is for."""

from __future__ import annotations

import re
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import psycopg.errors
import pytest

from tests.support.played_job import MODEL
from tests.support.polled import (
    JOB_ID,
    KINDS,
    MISSPELT,
    PAGE,
    READER,
    Example,
    Polled,
    deployed,
    examples,
)
from tests.support.postgres import create_database, drop_database, drop_role

RELATIONS = (
    "job_progress", "job_errors", "workers", "events", "evaluation_runs", "evaluation_metrics",
)  # fmt: skip
TYPES = {
    "text": {"text", "character varying"},
    "integer": {"integer", "bigint"},
    "real": {"real", "double precision"},
    "time": {"timestamp with time zone"},
}


def of_language(language: str) -> Any:
    """The examples of a language, once for each database that they are for."""
    cases = [
        pytest.param(kind, example, id=f"{kind}-{example.about or language}-{number}")
        for number, example in enumerate(examples())
        for kind in example.kinds
        if example.language == language and example.kind != "admin"
    ]
    assert cases
    return pytest.mark.parametrize(("polled", "example"), cases, indirect=["polled"])


@pytest.fixture(scope="module")
def sqlite_deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Polled]:
    place = tmp_path_factory.mktemp("a place")
    with deployed("sqlite", f"sqlite:///{place / 'pagemill.db'}", place) as polled:
        yield polled


@pytest.fixture(scope="module")
def postgresql_deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Polled]:
    url = create_database()
    try:
        with deployed("postgresql", url, tmp_path_factory.mktemp("place")) as polled:
            yield polled
    finally:
        drop_database(url)
        drop_role(READER)


@pytest.fixture
def polled(request: pytest.FixtureRequest) -> Polled:
    deployment = request.getfixturevalue(f"{request.param}_deployment")
    assert isinstance(deployment, Polled)
    deployment.refresh()
    return deployment


def on_each_database(test: Callable[..., None]) -> Callable[..., None]:
    return pytest.mark.parametrize("polled", KINDS, indirect=True)(test)


# ---- SQL


def near(value: float, expected: float) -> bool:
    """Of a job that began 1000 seconds before the test."""
    return expected * 0.9 < float(value) <= expected


def answers_how_far(rows: list[dict[str, Any]]) -> None:
    (row,) = rows
    assert (row["state"], row["rows_done"], row["rows_total"]) == ("in_progress", 5, 8)
    assert row["percent"] == 62.5
    assert near(row["rows_per_second"], 0.003)
    assert 1000 <= row["eta_seconds"] < 1200


def answers_what_is_done(rows: list[dict[str, Any]]) -> None:
    assert [(row["job_id"], row["state"], row["workers"]) for row in rows] == [
        ("job_stuck", "queued", 0),
        (JOB_ID, "in_progress", 1),
    ]


def answers_why(rows: list[dict[str, Any]]) -> None:
    assert [tuple(row.values()) for row in rows] == [
        ("invalid_json", 2, 7, "no JSON"),
        ("nan_logits", 1, None, "no number"),
    ]


def answers_failed(rows: list[dict[str, Any]]) -> None:
    assert [tuple(row.values()) for row in rows] == [
        ("job_failed", None, "model_unavailable", "there is no such model")
    ]


def answers_stuck(rows: list[dict[str, Any]]) -> None:
    assert [tuple(row.values()) for row in rows] == [("job_stuck", MISSPELT, "queued", 0, 4)]


def answers_last_hour(rows: list[dict[str, Any]]) -> None:
    (row,) = (row for row in rows if row["model"] == MODEL)
    assert row["jobs"] == 2
    assert float(row["rows"]) == pytest.approx(3 + 2, rel=0.1)
    assert float(row["tokens"]) == pytest.approx(3 + 7 + 6, rel=0.1)


def answers_alive(rows: list[dict[str, Any]]) -> None:
    assert [tuple(row.values()) for row in rows] == [
        ("gpu-7:4711:0f", MODEL, "ready", 3, 2, 64.0, 25, 75)
    ]


def answers_cost(rows: list[dict[str, Any]]) -> None:
    (row,) = (row for row in rows if row["model"] == MODEL)
    assert (row["gpu_hours"], row["device_hours"]) == (0.25, 0.5)
    assert row["generated"] == 6 + 3 + 7


def answers_night_by_night(rows: list[dict[str, Any]]) -> None:
    (row,) = rows
    assert (row["verdict"], row["value"], row["low"], row["high"]) == ("passed", 0.9, 0.8, 0.95)


def answers_who(rows: list[dict[str, Any]]) -> None:
    assert [row["event"] for row in rows] == ["submitted", "started"]
    assert all("@" in row["actor"] for row in rows)


def answers_together(rows: list[dict[str, Any]]) -> None:
    assert [tuple(row.values()) for row in rows] == [(MODEL, 1, 64.0)]


ANSWERS = {
    "How far is a job": answers_how_far,
    "What is being done, and what waits": answers_what_is_done,
    "Why have rows of a job no answer": answers_why,
    "Which jobs failed as a whole": answers_failed,
    "Which jobs are stuck, because no living worker serves their model": answers_stuck,
    "How much was done in the last hour": answers_last_hour,
    "Which workers are alive, and how busy are they": answers_alive,
    "What did the jobs of each model cost, and what came of it": answers_cost,
    "How did the exact score of an evaluation go, night by night, and what did the gate say": (
        answers_night_by_night
    ),
    "Who did what to a job": answers_who,
    "How fast is all of it together": answers_together,
}


def test_every_question_is_answered_on_both_databases() -> None:
    asked = {
        (example.about, kind)
        for example in examples()
        if example.language == "sql" and example.kind != "admin"
        for kind in example.kinds
    }
    assert asked == {(question, kind) for question in ANSWERS for kind in KINDS}


@of_language("sql")
def test_sql(polled: Polled, example: Example) -> None:
    rows = polled.query(example.code)
    ANSWERS[example.about](rows)
    # And at the prompt of the database's own program, where there is one.
    if polled.kind == "postgresql":
        psql = ("psql", polled.env["POLL_URL"], "--no-psqlrc", "--tuples-only", "--no-align")
        printed = polled.run(*psql, "--command", example.code)
    elif program := shutil.which("sqlite3"):
        printed = polled.run(program, "-readonly", str(polled.place / "pagemill.db"), example.code)
    else:
        return
    assert len(printed.splitlines()) == len(rows)


# ---- Python and the shell


@of_language("python")
def test_python(polled: Polled, example: Example) -> None:
    if "while True" in example.code:
        printed = polled.watch(set(), sys.executable, "-c", example.code)
        assert printed[0] == "in_progress: 2 of 4 rows"
        assert printed[-1] == "completed: 4 of 4 rows"
        return
    printed = polled.run(sys.executable, "-c", example.code, JOB_ID).splitlines()
    if "job_errors" in example.code:
        assert printed[0] == "invalid_json: 2 rows, such as: no JSON"
    else:
        assert {f"{JOB_ID} in_progress 62.5", "job_stuck queued 0.0"} <= set(printed)


@of_language("bash")
def test_shell(polled: Polled, example: Example) -> None:
    waits = "pagemill wait" in example.code
    lines = polled.watch({2}, "bash", "-u", "-c", example.code, patience=1 if waits else 60)
    if waits:
        assert lines == ["nan_logits: 1 row", "  line 3, row 2, custom_id id-2: no number"]
    elif "pagemill status" in example.code:
        assert lines[0].endswith(" in_progress")
        assert lines[-1] == "completed"
    else:
        assert lines[0].startswith("in_progress|50")
        assert lines[-1] == "nan_logits|1|no number"


@on_each_database
def test_wait_fetches_the_answers_of_a_job_without_errors(polled: Polled) -> None:
    (example,) = (e for e in examples() if e.language == "bash" and "pagemill wait" in e.code)
    assert polled.watch(set(), "bash", "-u", "-c", example.code, patience=1) == []
    answers = polled.place / "answers.parquet"
    assert answers.exists()
    answers.unlink()


def test_no_example_is_left_out() -> None:
    languages = {example.language for example in examples()}
    assert languages == {"sql", "python", "bash"}
    assert PAGE.count("\n```") == 2 * len(examples())


# ---- what is promised


def promised(relation: str) -> dict[str, str]:
    """The columns of a relation and their types, by the page."""
    (section,) = re.findall(rf"^## {relation}\n(.*?)^## ", PAGE, re.M | re.S)
    return dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", section, re.M))


@on_each_database
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_columns_are_those_of_the_page(polled: Polled, relation: str) -> None:
    columns = promised(relation)
    assert list(polled.query(f"SELECT * FROM {relation}")[0]) == list(columns)
    for name, kind in columns.items():
        if polled.kind == "sqlite":
            wanted = {"text" if kind == "time" else kind, "null"}
            found = polled.query(f"SELECT typeof({name}) AS type FROM {relation}")
        else:
            wanted = TYPES[kind]
            found = polled.query(f"SELECT pg_typeof({name})::text AS type FROM {relation} LIMIT 1")
        assert {row["type"] for row in found} <= wanted, name


@on_each_database
def test_errors_add_up_once_a_job_has_ended(polled: Polled) -> None:
    (job_id,) = polled.watch({0, 2, 3}, "bash", "-c", 'echo "$JOB"')
    (sums,) = polled.query(f"""
        SELECT (SELECT sum(rows) FROM job_errors AS e WHERE e.job_id = p.job_id) AS errors,
            rows_failed + rows_cancelled + rows_expired AS rows
        FROM job_progress AS p WHERE job_id = '{job_id}'
    """)
    assert sums["errors"] == sums["rows"] == 3


@pytest.mark.parametrize("polled", ["postgresql"], indirect=True)
def test_the_reader_sees_what_it_may_and_changes_nothing(polled: Polled) -> None:
    for relation in RELATIONS:
        assert polled.query(f"SELECT * FROM {relation}")
    for statement in ("SELECT * FROM jobs", "SELECT * FROM row_errors", "SELECT * FROM chunks"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            polled.query(statement)
    with pytest.raises(
        (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction)
    ):
        polled.query("UPDATE workers SET state = 'stopped'")


@pytest.mark.parametrize("polled", ["sqlite"], indirect=True)
def test_a_reader_of_the_file_changes_nothing(polled: Polled) -> None:
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        polled.query("UPDATE workers SET state = 'stopped'")


@on_each_database
def test_a_reader_that_takes_its_time_holds_up_no_worker(polled: Polled) -> None:
    """Its transaction is open while a job is done from its first row to its end."""
    if polled.kind == "sqlite":
        uri = f"{(polled.place / 'pagemill.db').as_uri()}?mode=ro"
        reader: Any = sqlite3.connect(uri, uri=True, isolation_level=None)
    else:
        reader = psycopg.connect(polled.env["POLL_URL"], autocommit=True)
    with closing(reader):
        reader.execute("BEGIN" if polled.kind == "sqlite" else "BEGIN ISOLATION LEVEL SERIALIZABLE")
        count = "SELECT count(*) FROM job_progress WHERE finished_at IS NULL"
        (seen,) = reader.execute(count).fetchone()
        polled.watch(set(), "echo")
        assert reader.execute(count).fetchone() == (seen,)
        reader.execute("COMMIT")
