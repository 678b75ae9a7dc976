"""Rows of JSON lines."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa

from jobs.errors import InputError, RowError
from jobs.openai_lines import is_batch_line
from jobs.reading.blocks import BLOCK_BYTES, BLOCK_ROWS, Block
from jobs.reading.lines import MAX_LINE_BYTES, READ_BYTES, split_lines
from jobs.reading.sources import reading
from jobs.rows import Row, refused
from jobs.schema import CARRIED_PREFIX, EXTRA_KEYS
from jobs.validation import RowValidator

MAX_KEYS = 4096  # of a row, and of its body
EXTRA_FIELD = pa.field(CARRIED_PREFIX + EXTRA_KEYS, pa.string())
_EXTRA_SCHEMA = pa.schema([EXTRA_FIELD])


class JsonLines:
    """A `Reader` of JSON lines.

    Args:
        name: what messages call the input.
        read: reads the next bytes, decompressed.
        position: how many bytes of the input were read so far, as stored.
        size: how many there are, where that is known.
    """

    unit = "line"

    def __init__(
        self,
        name: str,
        read: Callable[[int], bytes],
        validator: RowValidator,
        *,
        position: Callable[[], int],
        size: int | None,
        read_bytes: int = READ_BYTES,
    ) -> None:
        self.name = name
        self.size = size
        self.carried = [EXTRA_FIELD]
        self._read = read
        self._read_bytes = read_bytes
        self._position = position
        self._validator = validator
        self._first_line = b""

    @property
    def position(self) -> int:
        return self._position()

    def blocks(self) -> Iterator[Block]:
        rows: list[Row] = []
        held = 0
        for number, line in self._lines():
            row = self._row(number, line)
            rows.append(row)
            held += row.size
            if len(rows) == BLOCK_ROWS or held >= BLOCK_BYTES:
                yield _block(rows)
                rows, held = [], 0
        if rows:
            yield _block(rows)

    def hint(self) -> str:
        if self._first_line.rstrip() == b"{":
            return (
                " It looks like JSON that spans several lines; write each object on one line: "
                "jq -c . FILE > rows.jsonl"
            )
        if b"," in self._first_line and not self._first_line.lstrip().startswith((b"{", b"[")):
            return " It looks like CSV; write JSON lines or Parquet."
        return ""

    def _lines(self) -> Iterator[tuple[int, bytes | None]]:
        lines = split_lines(self._read, read_bytes=self._read_bytes)
        first = True
        while True:
            with reading(self.name):
                item = next(lines, None)
            if item is None:
                return
            if first and item[1] is not None:
                self._first_line = item[1][:1000]
                self._refuse_array(item[1])
            first = False
            yield item

    def _refuse_array(self, line: bytes) -> None:
        """One JSON array over all lines: its last lines would look like rows."""
        if not line.lstrip().startswith(b"["):
            return
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            value = [{}]
        if value and isinstance(value[0], dict):
            raise InputError(
                f"{self.name} is a JSON array, not JSON lines; write each element on a line of "
                "its own: jq -c '.[]' FILE > rows.jsonl"
            )

    def _row(self, number: int, line: bytes | None) -> Row:
        try:
            if line is None:
                raise RowError(
                    "line_too_long", f"the line is over the limit of {MAX_LINE_BYTES >> 20} MiB"
                )
            fields = parse_object(line)
            _check_keys(fields)
            repeated = repeated_keys(line, fields)
        except RowError as error:
            return self._salvage(number, line, error)
        if repeated:
            key = ".".join(repeated[0])
            twice = RowError("duplicate_key", f"the key {key[:100]!r} is there twice", key)
            return self._validator.refuse(number, fields, twice, _unsure(repeated))
        return self._validator.validate(number, fields)

    def _salvage(self, number: int, line: bytes | None, error: RowError) -> Row:
        """The error row of a line that is no JSON.

        Python's json writes NaN and Infinity, which JSON does not have. Such a line is read as
        Python reads it, to say in which field they are and whose row it is.
        """
        if line is not None and error.code == "invalid_json" and _is_pythons(line):
            try:
                fields = json.loads(line)
                repeated = repeated_keys(line, fields) if isinstance(fields, dict) else []
            except (ValueError, RecursionError, RowError):
                fields = None
            if isinstance(fields, dict):
                row = self._validator.validate(number, fields)
                if row.error is not None and row.error.field is not None and not repeated:
                    return row
                error = RowError("invalid_json", "NaN and Infinity are not JSON; write null")
                return self._validator.refuse(number, fields, error, _unsure(repeated))
        return refused(number, error)


_FEW_KEYS = 64
# The last escape of a string, and what follows up to the colon that makes it a key. From each
# escape it looks no further than to the next one, so the time is linear.
_ESCAPED_KEY = re.compile(rb'\\.[^"\\]*"\s*:', re.DOTALL)


def parse_object(line: bytes) -> dict[str, Any]:
    """The JSON object on a line.

    Raises:
        RowError: `invalid_utf8`, `nesting_too_deep`, `invalid_json` or `not_an_object`.
    """
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _explain(line, error) from None
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else "a string, number, true, false or null"
        raise RowError("not_an_object", f'the line is {kind}; it must be an object {{"prompt": …}}')
    return value


def repeated_keys(line: bytes, fields: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Keys that the object on a line has more than once: `("prompt",)`, `("body", "prompt")`.

    A parser keeps one of two equal keys in silence. A second look is for lines only in which
    a key's text stands twice, or a key is written with escapes (`"pr\\u006fmpt"`), or which have
    more keys than it pays to search for.

    Args:
        fields: the object, as `parse_object` read it.

    Raises:
        RowError: `nesting_too_deep`.
    """
    body = fields.get("body") if is_batch_line(fields) else None
    keys = (*fields, *body) if isinstance(body, dict) else tuple(fields)
    if len(keys) <= _FEW_KEYS and not (_stand_twice(line, keys) or _ESCAPED_KEY.search(line)):
        return []
    return _duplicates(line, body is not None)


def _check_keys(fields: Mapping[str, Any]) -> None:
    body = fields.get("body")
    for what, found in (("the row", fields), ("its body", body if isinstance(body, dict) else {})):
        if len(found) > MAX_KEYS:
            raise RowError(
                "too_many_keys",
                f"{what} has {len(found):,} keys; the limit is {MAX_KEYS:,}: put data of yours "
                "into an object of its own",
            )


def _explain(line: bytes, error: orjson.JSONDecodeError) -> RowError:
    try:
        line.decode()
    except UnicodeDecodeError as wrong:
        return RowError(
            "invalid_utf8",
            f"byte {line[wrong.start]:#04x} at position {wrong.start + 1} of the line is not "
            "UTF-8; save the file as UTF-8",
        )
    if "depth limit" in error.msg or "ecursion" in error.msg:
        return RowError("nesting_too_deep", "the line is nested too deep")
    return RowError("invalid_json", f"not JSON: {error.msg} at column {error.colno}")


def _stand_twice(line: bytes, keys: tuple[str, ...]) -> bool:
    """Whether one of the keys is on the line more often than it is among `keys`."""
    pattern = _PATTERNS.get(keys)
    if pattern is None:
        quoted = [b'"%s"' % key.encode() for key in keys]
        if len(_PATTERNS) == _MAX_PATTERNS or sum(map(len, quoted)) > _MAX_PATTERN_BYTES:
            return any(line.count(key) > 1 for key in quoted)
        pattern = re.compile(b"|".join(map(re.escape, quoted)))
        _PATTERNS[keys] = pattern
    return len(pattern.findall(line)) != len(keys)


# Rows of a file have the same few sets of keys. Where each row has new ones, it would take
# longer to make a pattern than to look for the keys one by one, and memory to keep it.
_PATTERNS: dict[tuple[str, ...], re.Pattern[bytes]] = {}
_MAX_PATTERNS = 256
_MAX_PATTERN_BYTES = 4096


def _duplicates(line: bytes, in_body: bool) -> list[tuple[str, ...]]:
    """Keys that the outermost object has more than once, or (if asked for) its `body`.

    Raises:
        RowError: `nesting_too_deep`.
    """
    try:
        outermost = json.loads(line, object_pairs_hook=_Pairs)
    except RecursionError:
        raise RowError("nesting_too_deep", "the line is nested too deep") from None
    found: list[tuple[str, ...]] = [(key,) for key in outermost.repeated]
    if in_body and isinstance(outermost.body, _Pairs):
        found += [("body", key) for key in outermost.body.repeated]
    return found


def _unsure(repeated: list[tuple[str, ...]]) -> set[str]:
    """Keys of the outermost object whose value is not known: it has two."""
    return {path[0] for path in repeated if len(path) == 1}


class _Pairs:
    """What is of interest of an object: keys that it has more than once, and its `body`."""

    __slots__ = ("body", "repeated")

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        counts = Counter(key for key, _ in pairs)
        self.repeated = [key for key, count in counts.items() if count > 1]
        self.body = next((value for key, value in pairs if key == "body"), None)


def _is_pythons(line: bytes) -> bool:
    """Whether Python's json may read the line, and gives no half surrogate pairs."""
    return (b"NaN" in line or b"Infinity" in line) and b"\\ud" not in line.lower()


def _block(rows: list[Row]) -> Block:
    extras = pa.array([row.extra for row in rows], pa.string())
    return Block(rows, pa.RecordBatch.from_arrays([extras], schema=_EXTRA_SCHEMA))
