"""What a process writes to its log, in both forms; hooks are tried in processes of their own."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from typing import Any

import pytest

from engine.errors import ConfigError
from engine.logs import JsonFormatter, configure_logging

pytestmark = pytest.mark.quick


def formatted(message: object, *args: object, process: str | None = None, **extra: object) -> Any:
    """What becomes of one record; the line is checked to be one."""
    record = logging.getLogger("pagemill.test").makeRecord(
        "pagemill.test", logging.WARNING, "file.py", 1, message, args, None, extra=extra
    )
    record.created = 1_700_000_000.9876
    line = JsonFormatter(process).format(record)
    assert "\n" not in line
    return json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def run(code: str, form: str) -> str:
    """Standard error of an interpreter that configures its log and then runs the code."""
    done = subprocess.run(
        [sys.executable, "-c", f"from engine.logs import *\nconfigure_logging({form!r})\n{code}"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == ""
    return done.stderr


def records(code: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(code, "json").splitlines()]


def test_a_record_has_its_fields_in_order():
    found = formatted("chunk %s is done", "c1", job_id="j", chunk_id="c1", epoch=3, rows=None)
    assert list(found.items()) == [
        ("ts", "2023-11-14T22:13:20.987Z"), ("level", "WARNING"), ("logger", "pagemill.test"),
        ("message", "chunk c1 is done"), ("job_id", "j"), ("chunk_id", "c1"), ("epoch", 3),
        ("rows", None),
    ]  # fmt: skip


def test_a_named_process_is_in_every_record():
    found = formatted("x", process="engine")
    assert found["process"] == "engine"
    assert isinstance(found["pid"], int)
    assert "pid" not in formatted("x")


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def test_what_json_cannot_hold_becomes_a_string():
    circle: list[Any] = []
    circle.append(circle)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    found = formatted(
        "two\nlines \ud800", nan=float("nan"), inner={"x": float("inf")}, kind=int, data=b"\xff",
        keys={(1, 2): 3}, circle=circle, bad=Unprintable(), fine={"a": [1, None, "é"]},
        lone="\udfff",
    )  # fmt: skip
    assert found["message"] == "two\nlines \ud800"
    assert found["nan"] == "nan"
    assert found["inner"] == "{'x': inf}"
    assert found["kind"] == "<class 'int'>"
    assert found["data"] == "b'\\xff'"
    assert found["keys"] == "{(1, 2): 3}"
    assert found["circle"] == "[[...]]"
    assert found["bad"] == "<Unprintable that cannot be shown>"
    assert found["fine"] == {"a": [1, None, "é"]}
    assert found["lone"] == "\udfff"
    assert isinstance(formatted("x", deep=deep)["deep"], str)


def test_arguments_that_do_not_fit_lose_no_record():
    assert formatted("%d rows", "many")["message"] == "%d rows ('many',)"
    assert formatted("%s", Unprintable())["message"].startswith("%s ")
    assert "Unprintable" in formatted(Unprintable())["message"]


def test_no_extra_takes_the_place_of_a_field():
    found = formatted("x", level="high", ts=1, pid=2)
    assert (found["level"], found["extra.level"], found["extra.ts"]) == ("WARNING", "high", 1)
    assert found["pid"] == 2  # no field of a process without a name


def test_text_is_for_people_and_shows_no_extras():
    code = "log.info('ready: %s', 'm', extra={'job_id': 'j'}); log.debug('unseen')"
    pattern = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO pagemill ready: m\n"
    assert re.fullmatch(pattern, run(code, "text"))


def test_configuring_again_replaces_the_form():
    code = "configure_logging('text')\nconfigure_logging('json', process='p')\nlog.info('x')"
    (found,) = records(code)
    assert (found["message"], found["process"]) == ("x", "p")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_of_an_uncaught_exception(form):
    found = run("1 / 0", form)
    if form == "text":
        assert "CRITICAL pagemill uncaught exception\nTraceback" in found
        assert found.endswith("ZeroDivisionError: division by zero\n")
    else:
        record = json.loads(found)
        assert (record["level"], record["message"]) == ("CRITICAL", "uncaught exception")
        assert record["exception"].startswith("Traceback")
        assert record["exception"].endswith("ZeroDivisionError: division by zero")


def test_an_exception_in_a_thread():
    code = (
        "import threading\n"
        "def run(what): raise what\n"
        "for what in (ValueError('seven'), SystemExit(3)):\n"
        "    t = threading.Thread(target=run, args=(what,), name='t1'); t.start(); t.join()\n"
    )
    (record,) = records(code)
    assert record["message"] == "uncaught exception in thread t1"
    assert record["thread_name"] == "t1"
    assert record["exception"].endswith("ValueError: seven")


def test_an_exception_that_nobody_can_catch():
    code = "class A:\n    def __del__(self): raise ValueError('late')\na = A()\ndel a\n"
    (record,) = records(code)
    assert record["level"] == "ERROR"
    assert "__del__" in record["message"]
    assert record["exception"].endswith("ValueError: late")


def test_warnings_are_records():
    (record,) = records("import warnings\nwarnings.warn('old use', stacklevel=1)")
    assert (record["logger"], record["level"]) == ("py.warnings", "WARNING")
    assert "UserWarning: old use" in record["message"]


def test_logged_exceptions_whose_text_fails():
    code = (
        "class Bad(Exception):\n"
        "    def __str__(self): raise RuntimeError\n"
        "try: raise Bad\n"
        "except Bad: log.exception('it failed', stack_info=True)\n"
    )
    (record,) = records(code)
    assert "Bad" in record["exception"]
    assert record["stack"].startswith("Stack")


@pytest.mark.parametrize(
    ("level", "seen"),
    [("debug", "debug info warning"), ("info", "info warning"), ("warning", "warning"),
     ("error", "")],
)  # fmt: skip
def test_a_level_drops_what_is_below(level, seen):
    code = (
        f"configure_logging('json', level={level!r})\n"
        "log.debug('debug'); log.info('info'); log.warning('warning')\n"
    )
    assert " ".join(record["message"] for record in records(code)) == seen


def test_another_level_is_refused():
    with pytest.raises(ConfigError, match=r"LOG_LEVEL\) is 'loud'; it must be one of debug, info"):
        configure_logging("text", level="loud")


def test_another_form_is_refused():
    with pytest.raises(ConfigError, match=r"LOG_FORMAT\) is 'xml'; it must be text or json"):
        configure_logging("xml")


def test_nothing_heavy_is_imported():
    code = "import sys, engine.logs; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "transformers", "tokenizers"} & set(done.stdout.split())
