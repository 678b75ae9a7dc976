"""A file is whole or absent, also where the file system can do little."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import StorageError, StorageUnusable
from jobs.job_folder import JobFolder
from jobs.storage import Storage

pytestmark = pytest.mark.quick


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    return Storage(str(tmp_path)).new_job("job")


@pytest.fixture(params=[True, False], ids=["links", "no links"])
def hard_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With hard links and, as on some network and FUSE file systems, without."""
    if not request.param:

        def refuse(*_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
    return bool(request.param)


@pytest.mark.usefixtures("hard_links")
def test_a_file_that_is_created_once_stays_as_it_was(folder: JobFolder) -> None:
    assert folder.create_once("v1/_manifest.json", b"first")
    assert not folder.create_once("v1/_manifest.json", b"second")
    assert folder.read("v1/_manifest.json") == b"first"
    assert [p.name for p in folder.at("v1").iterdir()] == ["_manifest.json"]


@pytest.mark.usefixtures("hard_links")
def test_a_second_name_is_given_once(folder: JobFolder) -> None:
    for name in ("a", "b"):
        with folder.create(name) as file:
            file.write(name.encode())
    folder.link("a", "v1/part")
    folder.link("b", "v1/part")
    assert folder.read("v1/part") == b"a"


def test_nothing_is_left_of_a_file_that_failed(folder: JobFolder) -> None:
    def fail() -> None:
        with folder.create("x/file") as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(folder.at("x").iterdir()) == []


WRITES = {
    "create": lambda folder: folder.create("a/b/file"),
    "create_once": lambda folder: folder.create_once("a/b/file", b"x"),
    "link": lambda folder: folder.link("own", "a/b/file"),
    "make_folder": lambda folder: folder.make_folder("a/b"),
}


@pytest.mark.parametrize("write", WRITES)
def test_the_names_of_new_folders_are_flushed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    """Else a power cut could take a part that is on the disk, and that SQL names."""
    unsafe: set[Path] = set()
    made: list[Path] = []
    mkdir, fsync = os.mkdir, os.fsync

    def making(path: Path, *arguments: Any) -> None:
        mkdir(path, *arguments)
        made.append(Path(path))
        unsafe.add(Path(path))

    def flushing(descriptor: int) -> None:
        fsync(descriptor)
        flushed = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        unsafe.difference_update([path for path in unsafe if path.parent == flushed])

    storage = Storage(str(tmp_path / "storage"))
    storage.root.mkdir()
    monkeypatch.setattr(os, "mkdir", making)
    monkeypatch.setattr(os, "fsync", flushing)
    folder = storage.new_job("job")
    assert (made, unsafe) == ([folder.path], set())
    with folder.create("own") as file:
        file.write(b"x")
    written = WRITES[write](folder)
    if write == "create":
        with written as file:
            file.write(b"x")
    assert made[1:] == [folder.at("a"), folder.at("a/b")]
    assert unsafe == set()


@pytest.mark.parametrize("path", ["../other/x", "/etc/passwd", ".", "a/../../x", "a\0b", "..", ""])
def test_a_path_stays_in_its_folder(folder: JobFolder, path: str) -> None:
    with pytest.raises(StorageError, match="not a path below"):
        folder.at(path)


USES = {
    "create": lambda folder: folder.create("a/b/file").__enter__(),
    "create_once": lambda folder: folder.create_once("a/b/file", b"x"),
    "link to": lambda folder: folder.link("a/b/file", "mine"),
    "link from": lambda folder: folder.link("own", "a/b/file"),
    "read": lambda folder: folder.read("a/b/file"),
    "files": lambda folder: folder.files("a/b"),
    "remove": lambda folder: folder.remove("a/b"),
    "remove file": lambda folder: folder.remove("a/b/file"),
    "exists": lambda folder: folder.exists("a/b/file"),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("linked", ["job", "job/a", "job/a/b"])
def test_no_link_leads_out_of_the_folder(tmp_path: Path, use: str, linked: str) -> None:
    """Someone who may write into the storage makes workers touch nothing else."""
    outside = tmp_path / "outside"
    for below in ("", "a", "b", "a/b"):
        (outside / below).mkdir(exist_ok=True)
        (outside / below / "file").write_bytes(b"precious")
    before = sorted(outside.rglob("*"))
    link = tmp_path / "storage" / linked
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    with pytest.raises(StorageError, match="through a symbolic link"):
        USES[use](Storage(str(tmp_path / "storage")).job("job"))
    assert sorted(outside.rglob("*")) == before
    assert all(path.read_bytes() == b"precious" for path in before if path.is_file())


def test_a_link_to_a_file_is_not_followed(folder: JobFolder, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (folder.path / "part").symlink_to(tmp_path / "secret")
    with pytest.raises(StorageError, match="through a symbolic link"):
        folder.read("part")


def test_the_storage_itself_may_be_reached_through_links(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "storage").symlink_to(tmp_path / "disk")
    folder = Storage(str(tmp_path / "storage")).new_job("job")
    assert folder.create_once("v1/file", b"x")
    assert (tmp_path / "disk" / "job" / "v1" / "file").read_bytes() == b"x"


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("s3://bucket/pagemill", "is s3://…, and jobs are kept in folders only"),
        ("S3://key:secret@bucket?region=eu", "is s3://…"),
        ("gs://bucket", "is gs://…"),
        ("hdfs://host/x", "is hdfs://…"),
        ("s3:/bucket/pagemill", "is s3://…"),
        ("file://srv/pagemill", "is file://srv/…, which names a host"),
    ],
)
def test_a_storage_that_is_no_folder_is_refused_with_what_to_do(url: str, found: str) -> None:
    with pytest.raises(StorageUnusable) as caught:
        Storage(url)
    assert found in caught.value.found
    assert "name a folder, or file:///path" in caught.value.cure
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["file:///srv/pagemill", "file://localhost/srv/pagemill"])
def test_a_folder_may_be_named_by_a_url(url: str) -> None:
    assert Storage(url).root == Path("/srv/pagemill")
