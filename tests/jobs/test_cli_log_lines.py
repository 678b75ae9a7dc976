"""What `pagemill run` understands of its worker's log."""

from __future__ import annotations

import json

import pytest

from jobs.cli.log_lines import read_log_line

pytestmark = pytest.mark.quick


def as_json(level: str, message: str) -> str:
    return json.dumps(
        {"ts": "2030-01-31T08:00:00.000Z", "level": level, "logger": "pagemill.worker",
         "message": message, "process": "worker", "worker_id": "h:1:x"}
    )  # fmt: skip


def test_a_line_of_text() -> None:
    line = "2030-01-31 08:00:00,000 ERROR pagemill.worker no such model: m"
    found = read_log_line(line)
    assert (found.level, found.message, found.shown) == ("ERROR", "no such model: m", line)
    assert found.is_error


def test_a_line_of_json_is_shown_as_one_of_text() -> None:
    found = read_log_line(as_json("CRITICAL", "no such model: m"))
    assert found.is_error
    assert found.message == "no such model: m"
    assert found.shown == "2030-01-31T08:00:00.000Z CRITICAL pagemill.worker no such model: m"


@pytest.mark.parametrize("level", ["DEBUG", "INFO", "WARNING"])
def test_what_is_no_error(level: str) -> None:
    assert not read_log_line(as_json(level, "x")).is_error
    assert not read_log_line(f"2030-01-31 08:00:00,000 {level} pagemill.worker x").is_error


@pytest.mark.parametrize(
    "line",
    ["RuntimeError: out of luck", "{", "[1]", "{}", '{"level": "ERROR"}', "7", "[" * 100_000],
)
def test_any_other_line_is_a_message_as_it_stands(line: str) -> None:
    found = read_log_line(line)
    assert (found.level, found.message, found.shown) == (None, line, line)


def test_it_reads_what_our_loggers_write() -> None:
    import logging

    from engine.logs import JsonFormatter

    record = logging.makeLogRecord(
        {"msg": "no %s", "args": ("luck",), "levelname": "ERROR", "name": "pagemill.x", "job_id": 1}
    )
    found = read_log_line(JsonFormatter("worker").format(record))
    assert (found.level, found.message) == ("ERROR", "no luck")
