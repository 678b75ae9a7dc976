"""The same rows, in whatever way their lines are stored and read."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import orjson
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.prompts import PromptRules
from jobs.reading.opening import open_input
from jobs.rows import Row

_good = st.builds(
    lambda text, key: (orjson.dumps({"prompt": text, "x": key}), None),
    st.text(min_size=1, max_size=20),
    st.integers(-5, 5),
)
_bad = st.sampled_from(
    [
        (b'{"prompt":"caf\xe9"}', "invalid_utf8"),
        (b'{"prompt":"a"', "invalid_json"),
        (b'{"prompt":"a","temperature":NaN}', "invalid_parameter"),
        (b"[1]", "not_an_object"),
        (b'{"prompt":"a","prompt":"b"}', "duplicate_key"),
        (b"\xef\xbb\xbf{}", "invalid_json"),
        (b"\x1f\x8b", "invalid_utf8"),
    ]
)
_blank = st.sampled_from([b"", b" ", b"\t"])
_end = st.sampled_from([b"\n", b"\r\n"])


def _compress(content: bytes, how: str, cut: int) -> bytes:
    """`content` as one member or frame, or as two that are cut anywhere."""
    parts = [content[:cut], content[cut:]]
    if how == "gzip":
        return gzip.compress(content)
    if how == "members":
        return b"".join(gzip.compress(part) for part in parts)
    if how == "zstd":
        return zstandard.compress(content)
    if how == "frames":
        skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00\x00\x00\x00\x00"
        return skippable + b"".join(zstandard.compress(part) for part in parts)
    return content


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_rows_do_not_depend_on_line_ends_compression_or_reads(data: st.DataObject) -> None:
    content = data.draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    expected: list[tuple[int, str | None]] = []
    # The first bytes say what a file is, so a bad line may not stand there.
    lines = [data.draw(_good), *data.draw(st.lists(st.one_of(_good, _bad), max_size=20))]
    for number, (line, code) in enumerate(lines):
        content += line + data.draw(_end)
        expected.append((2 * number + 1, code))
        content += data.draw(_blank) + data.draw(_end)
    how = data.draw(st.sampled_from(["plain", "gzip", "members", "zstd", "frames"]))
    stored = _compress(content, how, data.draw(st.integers(0, len(content))))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        path.write_bytes(stored)
        rows = read_rows(str(path), data.draw(st.sampled_from([1, 2, 3, 17, 1 << 20])))
    assert [(row.line, row.error and row.error.code) for row in rows] == expected


def read_rows(path: str, read_bytes: int) -> list[Row]:
    with open_input(path, PromptRules(), read_bytes=read_bytes) as reader:
        return [row for block in reader.blocks() for row in block.rows]
