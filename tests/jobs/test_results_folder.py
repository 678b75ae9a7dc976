"""`pagemill results` into a folder: a file of each part, or one of all."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs.errors import StorageError
from jobs.finalize import drive
from jobs.storage import Storage
from tests.support.command_line import CommandLine
from tests.support.played_job import PlayedJob, Window, add_job

pytestmark = pytest.mark.quick

WINDOWS = [Window([[2, 0]], rejected=[1]), Window([[5, 4], [3]])]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    cli = CommandLine(tmp_path / "home", monkeypatch)
    cli("db", "upgrade")
    return cli


@pytest.fixture
def job(cli: CommandLine, tmp_path: Path) -> Iterator[PlayedJob]:
    with cli.store() as store:
        job = add_job(store, Storage(str(tmp_path / "home" / "storage")), WINDOWS)
        job.finish_all()
        drive(store, job.storage, "me")
        yield job


def json_rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("there", [False, True])
def test_each_part_is_a_file(cli: CommandLine, job: PlayedJob, tmp_path: Path, there: bool) -> None:
    folder = tmp_path / "answers"
    if there:
        folder.mkdir()

    _, err = cli("results", job.id, "-o", f"{folder}/")

    assert f"6 rows in 2 files in {folder}/" in err
    assert sorted(path.name for path in folder.iterdir()) == [
        "part-00000.parquet",
        "part-00001.parquet",
    ]
    rows = [pq.read_table(path)["row_index"].to_pylist() for path in sorted(folder.iterdir())]
    assert rows == [[0, 1, 2], [3, 4, 5]]
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")] == []


@pytest.mark.parametrize(
    ("form", "ending"), [("jsonl", "jsonl"), ("openai", "jsonl"), ("csv", "csv")]
)
def test_in_any_format(
    cli: CommandLine, job: PlayedJob, tmp_path: Path, form: str, ending: str
) -> None:
    cli("results", job.id, "-o", f"{tmp_path}/answers/", "--format", form)
    parts = sorted((tmp_path / "answers").iterdir())
    assert [path.name for path in parts] == [f"part-{n:05d}.{ending}" for n in range(2)]
    header = form == "csv"  # of each file
    assert [len(path.read_text().splitlines()) - header for path in parts] == [3, 3]


def test_a_single_file_has_the_name_of_the_job(
    cli: CommandLine, job: PlayedJob, tmp_path: Path
) -> None:
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / "other").touch()
    for form in ("jsonl", "jsonl"):  # the second time it is replaced
        given = (f"{tmp_path}/answers", "--single-file", "--format", form)
        cli("results", job.id, "-o", *given)
    rows = json_rows(tmp_path / "answers" / f"{job.id}.jsonl")
    assert [row["row_index"] for row in rows] == [0, 1, 2, 3, 4, 5]
    cli("results", job.id, "-o", str(tmp_path / "a.jsonl"), "--single-file")
    assert json_rows(tmp_path / "a.jsonl") == rows


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("home/",), "not empty: name a file, or a new folder, or give --single-file"),
        (("home",), "not empty"),
        (("new/", "--single-file"), "there is no such folder"),
        (("none/new/",), "no folder"),
        (("file/",), "is a file; leave out the slash"),
        (("new/", "--partial"), "--partial goes into one file"),
    ],
)
def test_what_cannot_be(
    cli: CommandLine,
    job: PlayedJob,
    tmp_path: Path,
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    (tmp_path / "file").touch()
    before = sorted(tmp_path.iterdir())
    path, *options = arguments
    _, err = cli("results", job.id, "-o", f"{tmp_path}/{path}", *options, expect=64)
    assert sentence in err
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_is_there_stays_the_same_one(
    cli: CommandLine, job: PlayedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "answers"
    folder.mkdir(0o700)
    monkeypatch.chdir(folder)  # as in a shell; and a mounted one could not be replaced at all

    cli("results", job.id, "-o", ".")

    assert sorted(os.listdir()) == ["part-00000.parquet", "part-00001.parquet"]
    assert os.path.samefile(folder, ".")


def test_files_that_cannot_be_moved_are_not_there(
    cli: CommandLine, job: PlayedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "answers"
    folder.mkdir()
    rename = Path.rename

    def refused(path: Path, target: Path) -> Path:
        if path.name == "part-00001.parquet":
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refused)
    _, err = cli("results", job.id, "-o", str(folder), expect=74)
    assert f"cannot write {folder}: Input/output error" in err
    assert list(folder.iterdir()) == []


def test_a_folder_that_may_not_be_written_is_refused_at_once(
    cli: CommandLine, job: PlayedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "answers"
    folder.mkdir()
    # Root, who runs tests too, may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != folder)
    _, err = cli("results", job.id, "-o", str(folder), expect=64)
    assert "cannot be written; name a folder of yours" in err


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_is_there_as_a_whole_or_not_at_all(
    cli: CommandLine, job: PlayedJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    from jobs import export

    if there:
        (tmp_path / "answers").mkdir()

    whole = export.export_file

    def full(rows: Any, path: Path, form: Any) -> int:
        if path.name.startswith("part-00001"):
            raise StorageError(f"cannot write {path}: No space left on device")
        return whole(rows, path, form)

    monkeypatch.setattr(export, "export_file", full)
    _, err = cli("results", job.id, "-o", f"{tmp_path}/answers/", expect=74)
    assert "No space left" in err
    left = ["answers", "home"] if there else ["home"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left
    assert not there or list((tmp_path / "answers").iterdir()) == []
