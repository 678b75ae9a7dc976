"""Temporary folders of the dead are removed, and no others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.scratch import PREFIX, abandoned, remove_abandoned, scratch_folder
from tests.support.command_line import CommandLine

HOLDER = """
import sys
from jobs.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "rows").write_bytes(b"rows")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@contextmanager
def held() -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A folder that another process uses."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield Path(process.stdout.readline().strip()), process
        finally:
            process.kill()


def left_by_a_kill() -> Path:
    with held() as (folder, process):
        process.kill()
    return folder


def test_that_of_a_process_that_was_killed_is_removed() -> None:
    folder = left_by_a_kill()
    assert (folder / "rows").exists()
    assert abandoned() == [folder]
    assert folder.exists()
    assert remove_abandoned() == [folder]
    assert not folder.exists()
    assert remove_abandoned() == []


def test_that_of_a_living_process_stays_also_where_it_is_frozen() -> None:
    import signal

    with held() as (folder, process):
        process.send_signal(signal.SIGSTOP)
        assert abandoned() == []
        assert remove_abandoned() == []
        assert (folder / "rows").exists()


def test_whoever_needs_one_removes_those_of_the_dead(temporary: Path) -> None:
    left = left_by_a_kill()
    with scratch_folder() as folder:
        assert list(temporary.iterdir()) == [folder]
        assert not left.exists()
        assert remove_abandoned() == []
    assert list(temporary.iterdir()) == []


def fail_in_one() -> None:
    with scratch_folder() as folder:
        (folder / "rows").write_bytes(b"rows")
        raise RuntimeError


@pytest.mark.quick
def test_it_is_removed_after_an_error(temporary: Path) -> None:
    with pytest.raises(RuntimeError):
        fail_in_one()
    assert list(temporary.iterdir()) == []


@pytest.mark.quick
def test_what_is_not_ours_stays(temporary: Path, tmp_path: Path) -> None:
    real = tmp_path / "real"
    lock = ".in-use"
    for folder in (real, temporary / "other-folder", temporary / f"{PREFIX}half-made"):
        folder.mkdir()
    for folder in (real, temporary / "other-folder"):
        (folder / lock).touch()
    (temporary / f"{PREFIX}link").symlink_to(real)
    (temporary / f"{PREFIX}file").touch()
    linked = temporary / f"{PREFIX}linked-lock"
    linked.mkdir()
    (linked / lock).symlink_to(real / lock)
    before = sorted(temporary.iterdir())
    assert remove_abandoned() == []
    assert sorted(temporary.iterdir()) == before
    assert (real / lock).exists()


@pytest.mark.quick
@pytest.mark.skipif(os.getuid() != 0, reason="only root may give folders away")
def test_those_of_other_users_are_theirs(temporary: Path) -> None:
    theirs = temporary / f"{PREFIX}theirs"
    theirs.mkdir()
    (theirs / ".in-use").touch()
    os.chown(theirs, 12345, 12345)
    assert remove_abandoned() == []
    os.chown(theirs, 0, 0)
    assert remove_abandoned() == [theirs]


def test_gc_names_what_it_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli = CommandLine(tmp_path / "home", monkeypatch)
    cli("db", "upgrade")
    left = left_by_a_kill()
    out, said = cli("gc", "--dry-run")
    assert out == f"{left}  is of a command that was killed\n"
    assert "1 folder removed" in said
    assert left.exists()
    assert json.loads(cli("gc", "--json")[0]) == [{"id": str(left), "reason": "killed"}]
    assert not left.exists()
    assert cli("gc")[0] == ""
