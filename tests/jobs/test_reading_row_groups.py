"""Our view of a Parquet file's row groups is Arrow's, and ends no process."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.errors import InputError
from jobs.reading.row_groups import read_row_groups
from tests.support.submissions import prepare_file

TABLE = pa.table(
    {
        "prompt": [f"word {i}" * (i % 5) for i in range(300)],
        "messages": [
            [{"role": "user", "content": "hi", "parts": [b"x"] * (i % 3)}] for i in range(300)
        ],
        "n": range(300),
        "real": [i / 3 if i % 2 else None for i in range(300)],
        "at": [datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)] * 300,
        "flag": [i % 2 == 0 for i in range(300)],
        "kind": pa.array(["a", "b", "c"] * 100).dictionary_encode(),
        "map": pa.array([[("k", 1)]] * 300, pa.map_(pa.string(), pa.int64())),
        "none": pa.nulls(300),
    }
)
LISTS_OF_LONGS = (0x26, 0x36, 0x46, 0x56)  # of two to five
OPTIONS: list[dict[str, Any]] = [
    {},
    {"use_dictionary": False, "compression": "none", "version": "1.0"},
    {"compression": "zstd", "write_statistics": False, "data_page_version": "2.0"},
    {"row_group_size": 7, "write_page_index": True, "compression": "gzip"},
    {"row_group_size": 100, "write_page_checksum": True, "column_encoding": None,
     "sorting_columns": [pq.SortingColumn(0)]},
]  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("options", OPTIONS)
def test_it_says_what_arrow_says(options: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path, **options)
    with open(path, "rb") as stream, pq.ParquetFile(path) as file:
        metadata = file.metadata
        found = list(itertools.islice(read_row_groups(stream), metadata.num_row_groups))
    for i, group in enumerate(found):
        info = metadata.row_group(i)
        assert (group.num_rows, group.total_bytes) == (info.num_rows, info.total_byte_size)
        for leaf, column in zip(
            group.leaves, map(info.column, range(info.num_columns)), strict=True
        ):
            dictionaries = {"RLE_DICTIONARY", "PLAIN_DICTIONARY"} & set(column.encodings)
            start = column.data_page_offset
            if column.dictionary_page_offset is not None:
                start = min(start, column.dictionary_page_offset)
            assert leaf.path == column.path_in_schema
            assert leaf.is_text == (column.physical_type == "BYTE_ARRAY")
            assert leaf.has_dictionary == bool(dictionaries)
            assert leaf.num_values == column.num_values
            assert leaf.start == start
            assert leaf.stored_bytes == column.total_compressed_size
            assert leaf.encoded_bytes == column.total_uncompressed_size


def test_metadata_that_end_arrow_are_refused(tmp_path: Path) -> None:
    """One more level in a histogram: Arrow throws where nobody catches."""
    path = tmp_path / "a.parquet"
    messages = [[{"role": "user", "content": "hi"}]] * 20
    pq.write_table(pa.table({"messages": messages}), path)
    whole = path.read_bytes()
    length = int.from_bytes(whole[-8:-4], "little")
    ended = 0
    for place in range(len(whole) - 8 - length, len(whole) - 8):
        if whole[place] not in LISTS_OF_LONGS:
            continue
        longer = bytes([whole[place] + 16, 0]) + whole[place + 1 : -8]
        path.write_bytes(whole[:place] + longer + (length + 1).to_bytes(4, "little") + b"PAR1")
        code = f"import pyarrow.parquet as p; p.ParquetFile({str(path)!r}).metadata.row_group(0)"
        done = subprocess.run([sys.executable, "-c", f"{code}.column(1)"], capture_output=True)
        ended += done.returncode < 0
        with contextlib.suppress(InputError):  # some are no lists
            prepare_file(path, tmp_path / "storage")
    assert ended
