"""What stands on a line of JSON lines."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import orjson
import pytest

from jobs.errors import RowError
from jobs.reading import jsonl
from jobs.reading.jsonl import parse_object, repeated_keys
from jobs.reading.lines import MAX_LINE_BYTES
from tests.support.submissions import prepare_lines

pytestmark = pytest.mark.quick

BAD_LINES: list[tuple[bytes, str, str | None]] = [
    (b'{"prompt":"caf\xe9"}', "invalid_utf8", None),
    (b'{"prompt":"\xed\xa0\x80"}', "invalid_utf8", None),
    (b"\xff\xfe", "invalid_utf8", None),
    (b"prompt", "invalid_json", None),
    (b'{"prompt":"a"', "invalid_json", None),
    (b'{"prompt":"a"},', "invalid_json", None),
    (b"{'prompt':'a'}", "invalid_json", None),
    (b'{"prompt":"a"} {"prompt":"b"}', "invalid_json", None),
    (b'{"prompt":"\\ud800"}', "invalid_json", None),
    (b'{"prompt":"a\x00"}', "invalid_json", None),
    (b'{"prompt":"a","x":NaN}', "invalid_json", None),
    (b'{"prompt":"a","x":Infinity,"custom_id":"\\ud800"}', "invalid_json", None),
    (b'{"prompt":"a","temperature":NaN}', "invalid_parameter", "temperature"),
    (b'{"prompt":"a","top_p":-Infinity}', "invalid_parameter", "top_p"),
    (b'{"prompt":"a","seed":9223372036854775808}', "invalid_parameter", "seed"),
    (b'{"prompt":"a","seed":1e3}', "wrong_type", "seed"),
    (b'{"prompt":"a","max_tokens":1' + b"0" * 30 + b',"x":NaN}', "invalid_parameter", "max_tokens"),
    (b'"prompt"', "not_an_object", None),
    (b"[1]", "not_an_object", None),
    (b"null", "not_an_object", None),
    (b'{"prompt":"a","prompt":"b"}', "duplicate_key", "prompt"),
    (b'{"x":1,"prompt":"a", "x" : 1}', "duplicate_key", "x"),
    (b'{"prompt":' + b"[" * 100_000, "nesting_too_deep", None),
    (b'{"prompt":"a","x":' + b"[" * 500 + b"]" * 500 + b"}", "nesting_too_deep", None),
    (b'{"x":NaN,"a":' + b"[" * 100_000, "invalid_json", None),
]


@pytest.mark.parametrize(("line", "code", "field"), BAD_LINES)
def test_a_bad_line_is_an_error_row_and_its_neighbours_are_answered(
    tmp_path: Path, line: bytes, code: str, field: str | None
) -> None:
    done = prepare_lines(tmp_path, {"prompt": "before"}, b"", line, {"prompt": "after"})
    assert done.errors() == [(3, code, field)]
    assert [(r["row_index"], r["line"], r["prompt"]) for r in done.rows()] == [
        (0, 1, "before"),
        (2, 4, "after"),
    ]


def test_a_line_over_the_limit_is_an_error_row(tmp_path: Path) -> None:
    over = b'{"prompt":"' + b"x" * MAX_LINE_BYTES + b'"}'
    done = prepare_lines(tmp_path, over, {"prompt": "after"})
    assert done.errors() == [(1, "line_too_long", None)]
    assert "16 MiB" in done.rejected()[0]["error"]["message"]


def test_a_line_of_python_with_nan_keeps_its_id(tmp_path: Path) -> None:
    bad = b'{"prompt":"a","custom_id":"mine","temperature":NaN}'
    done = prepare_lines(tmp_path, bad, {"prompt": "after"})
    assert done.rejected()[0]["custom_id"] == "mine"


@pytest.mark.parametrize(
    "line",
    [
        b'{"prompt":"a \\"prompt\\" here"}',
        b'{"prompt":"prompt"}',
        b'{"prompt":"a","x":{"prompt":1,"x":2}}',
        b'{"pr\\u006fmpt":"a","x":1}',
        b'{"prompt":"{\\"prompt\\": 1, \\"pr\\\\u006fmpt\\": 2}","x":1}',
        b'{"prompt":"a","x":{"y":1,"y":2}}',
        b'{"prompt":"a","url":"u","method":"GET","body":{"y":1,"y":2}}',
        b'{"url":"u","method":"POST","body":{"url":"u","method":1,"body":2,"x":{"url":3}}}',
    ],
)
def test_a_key_that_only_seems_to_be_there_twice_is_fine(line: bytes) -> None:
    assert repeated_keys(line, parse_object(line)) == []


def _repeated(line: bytes) -> list[tuple[str, ...]]:
    return repeated_keys(line, parse_object(line))


_LINE = b'"method":"POST","url":"/v1/completions"'


@pytest.mark.parametrize(
    ("line", "custom_id", "own"),
    [
        (b'{"custom_id":"c",%s,"body":{"prompt":"x","prompt":"y"},"t":1}' % _LINE, "c", {"t": 1}),
        (b'{"custom_id":"c",%s,"url":"u","body":{"prompt":"x"},"t":1}' % _LINE, "c", {"t": 1}),
        (b'{"custom_id":"c",%s,"body":{},"body":{"prompt":"x"}}' % _LINE, "c", None),
        (b'{"custom_id":"c",%s,"body":{"custom_id":1,"custom_id":2}}' % _LINE, "c", None),
        (b'{"custom_id":"c","custom_id":"d",%s,"body":{"prompt":"x"},"t":1}' % _LINE,
         None, {"t": 1}),
        (b'{"custom_id":"c","prompt":"x","prompt":"y","t":1}', "c", {"t": 1}),
        (b'{"custom_id":"c","prompt":"x","pr\\u006fmpt":"y","t":1}', "c", {"t": 1}),
        (b'{"custom_id":"c","custom\\u005fid" : "d","prompt":"y","t":1}', None, {"t": 1}),
        (b'{"custom_id":"c","prompt":"x","a/b\\\\":1,"a\\/b\\u005c":2,"t":1}', "c", {"t": 1}),
        (b'{"custom_id":"c",%s,"body":{"prompt":"x","\\u0070rompt":"y"},"t":1}' % _LINE,
         "c", {"t": 1}),
        (b'{"custom_id":7,"prompt":"x","t":1,"t":2,"u":3}', "7", {"u": 3}),
        (b'{"custom_id":"c","custom_id":"c","prompt":"x","t":1}', None, {"t": 1}),
        (b'{"custom_id":[],"prompt":"x","prompt":"y","t":1}', None, {"t": 1}),
        (b'{"custom_id":"c","prompt":"x","max_tokens":1,"max_tokens":2,"temprature":3}', "c", None),
    ],
)  # fmt: skip
def test_a_line_with_a_key_twice_keeps_what_stands_there_once(
    tmp_path: Path, line: bytes, custom_id: str | None, own: dict[str, int] | None
) -> None:
    done = prepare_lines(tmp_path, line, {"prompt": "after"})
    (row,) = done.rejected()
    assert (row["error"]["code"], row["custom_id"]) == ("duplicate_key", custom_id)
    assert (row["input"] and orjson.loads(row["input"])) == own


def test_a_line_of_python_with_an_id_twice_has_none(tmp_path: Path) -> None:
    bad = b'{"prompt":"a","custom_id":"c","custom_id":"d","x":NaN,"y":1}'
    (row,) = prepare_lines(tmp_path, bad, {"prompt": "after"}).rejected()
    assert (row["error"]["code"], row["custom_id"]) == ("invalid_json", None)
    assert orjson.loads(row["input"]) == {"x": None, "y": 1}


def test_keys_that_are_new_in_every_row_take_bounded_memory() -> None:
    jsonl._PATTERNS.clear()
    long = b"k" * 100_000
    for i in range(2000):
        assert not _repeated(b'{"prompt":"a","%d":1}' % i)
        assert not _repeated(b'{"prompt":"a","%d%s":1}' % (i, long))
        assert _repeated(b'{"%d":"a","%d":1}' % (i, i)) == [(str(i),)]
    assert sum(len(key) for keys in jsonl._PATTERNS for key in keys) < 10_000
    jsonl._PATTERNS.clear()


def test_the_message_tells_the_byte_or_the_column() -> None:
    with pytest.raises(RowError, match="byte 0xe9 at position 14 of the line is not UTF-8"):
        parse_object(b'{"prompt":"caf\xe9"}'.replace(b"prompt", b"promp"))
    with pytest.raises(RowError, match=r"not JSON: .* at column 11"):
        parse_object(b'{"prompt":}')


def test_a_depth_that_one_parser_takes_and_the_other_does_not_is_no_crash() -> None:
    """A key's text stands twice, so the line is read a second time, by the other parser."""
    for depth in range(900, 1024, 10):
        line = b'{"prompt":"a","x":' + b"[" * depth + b"]" * depth + b',"y":{"x":1}}'
        with contextlib.suppress(RowError):
            _repeated(line)


def test_many_keys_take_no_longer_than_they_must() -> None:
    """Time in proportion to the line, not to its square: this took a minute once."""
    line = b'{"prompt":"a",' + b",".join(b'"k%d":1' % i for i in range(100_000)) + b"}"
    began = time.perf_counter()
    assert _repeated(line) == []
    assert _repeated(line[:-1] + b',"k7":2}') == [("k7",)]
    assert time.perf_counter() - began < 10
