"""A file that somebody writes to while it is read is refused, and leaves nothing behind."""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.errors import InputChanged, InputError
from jobs.reading.unchanged import Stamp
from jobs.storage import Storage
from jobs.submission import Submission, prepare

pytestmark = pytest.mark.quick

LINES = b'{"prompt":"a"}\n{"prompt":"b"}\n'
OLD_NS = 1_600_000_000_123_456_789  # a time of long ago: what is written now is surely later


def old(path: Path) -> Path:
    os.utime(path, ns=(OLD_NS, OLD_NS))
    return path


def lines(path: Path, content: bytes = LINES) -> Path:
    path.write_bytes(content)
    return old(path)


def table(path: Path, *prompts: str) -> Path:
    pq.write_table(pa.table({"prompt": prompts or ("a", "b")}), path)
    return old(path)


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(path.read_bytes()[:4])


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"prompt":"c"}\n')


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.replace(old(other), path)


def submit(given: str | Path, storage: Path, during: Callable[[], None], **options: object) -> None:
    """Prepare a job; `during` happens once its first rows were read."""
    asked = Submission(input=str(given), model="tiny", **options)  # type: ignore[arg-type]
    prepare(asked, Storage(str(storage)), lambda _: during())


WRITES = pytest.mark.parametrize("write", [overwrite, append, truncate])


@WRITES
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet", "a"])
def test_a_file_that_is_written_is_refused(
    tmp_path: Path, name: str, write: Callable[[Path], None]
) -> None:
    path = tmp_path / name
    if name.endswith(".gz"):
        lines(path, gzip.compress(LINES))
    elif name.endswith(".jsonl"):
        lines(path)
    else:
        table(path)  # whose first bytes tell that it is one, where its name does not
    with pytest.raises(InputChanged, match=rf"{path} was written .* nobody writes to it, or give"):
        submit(path, tmp_path / "s", lambda: write(path))
    assert not list((tmp_path / "s").glob("job_*"))


def test_first_rows_of_a_file_that_grows(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl")
    with pytest.raises(InputChanged):
        submit(path, tmp_path / "s", lambda: append(path), limit=1)


def test_the_change_is_told_and_not_what_came_of_it(tmp_path: Path) -> None:
    """A file that is cut where nobody looked yet may end in the middle of a line."""
    path = lines(tmp_path / "a.jsonl", LINES)

    def during() -> None:
        truncate(path)
        raise InputError("the last line is no JSON")

    with pytest.raises(InputChanged) as caught:
        submit(path, tmp_path / "s", during)
    assert str(caught.value.__cause__) == "the last line is no JSON"


def test_a_file_that_stays_is_read(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl")
    submit(path, tmp_path / "s", lambda: os.chmod(path, 0o600))
    submit(table(tmp_path / "a.parquet"), tmp_path / "s", lambda: None)


def test_a_torn_file_that_stays_has_its_own_error(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl.gz", gzip.compress(LINES)[:-9])
    with pytest.raises(InputError, match="is truncated") as caught:
        submit(path, tmp_path / "s", lambda: None)
    assert not isinstance(caught.value, InputChanged)


def test_lines_are_read_to_their_end_whatever_has_their_name(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl")
    submit(path, tmp_path / "s", lambda: replace(path))
    submit(path, tmp_path / "s", path.unlink)


def test_parquet_that_is_replaced_is_refused(tmp_path: Path) -> None:
    """It is opened again for each row group."""
    path = table(tmp_path / "a.parquet")
    with pytest.raises(InputChanged, match=f"{path} was written or replaced"):
        submit(path, tmp_path / "s", lambda: replace(path))


def test_any_file_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    first, second = (table(folder / f"{n}.parquet") for n in (1, 2))
    with pytest.raises(InputChanged, match=f"{second} was written or replaced"):
        submit(folder, tmp_path / "s", lambda: old(table(second, "c")) and overwrite(second))
    old(second)
    submit(folder, tmp_path / "s", lambda: None)
    done: list[int] = []

    def write_first() -> None:
        """After it has been read: the second file may be of the version that comes."""
        done.append(1)
        if len(done) == 2:
            overwrite(first)

    with pytest.raises(InputChanged, match=f"{first} was written or replaced"):
        submit(folder, tmp_path / "s", write_first)


def test_stdin_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lines(tmp_path / "a.jsonl")
    with path.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        with pytest.raises(InputChanged, match="stdin was written"):
            submit("-", tmp_path / "s", lambda: append(path))


def test_pipes_have_nothing_to_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(LINES,))
    writer.start()
    submit(fifo, tmp_path / "s", lambda: None)
    writer.join()

    ours, theirs = os.pipe()
    os.write(theirs, LINES)
    os.close(theirs)
    with os.fdopen(ours) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        submit("-", tmp_path / "s", lambda: None)


@pytest.mark.parametrize(
    ("later", "fits"),
    [
        (OLD_NS, True),
        (OLD_NS - OLD_NS % 100, True),  # NTFS and SMB
        (OLD_NS - OLD_NS % 1_000, True),
        (OLD_NS - OLD_NS % 1_000_000, True),
        (OLD_NS - OLD_NS % 1_000_000_000, True),  # old file systems and servers
        (OLD_NS - OLD_NS % 2_000_000_000, True),  # FAT
        (OLD_NS + 1, False),
        (OLD_NS + 1_000_000_000, False),
        (OLD_NS - 4_000_000, False),
    ],
)
def test_times_that_a_server_cuts_are_no_write(later: int, fits: bool) -> None:
    before, after = Stamp(1, 2, 3, OLD_NS), Stamp(1, 2, 3, later)
    assert before.fits(after) is fits
    assert after.fits(before) is fits
    assert not before.fits(None)
    assert not before.fits(Stamp(1, 2, 4, OLD_NS))
    assert not before.fits(Stamp(1, 3, 3, OLD_NS))
    assert not before.fits(Stamp(2, 2, 3, OLD_NS))
