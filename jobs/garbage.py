"""Removes what a finished version of a job left behind."""

from __future__ import annotations

import re
from collections.abc import Iterable

from jobs import layout
from jobs.gather import WINDOWS_FOLDER
from jobs.job_folder import JobFolder
from jobs.records import ChunkRecord

PARTS_FOLDER = "_parts"
INPUT_FOLDER = "_input"
_PART = re.compile(r"\.?(?P<chunk>.+)-e\d+\.parquet(\.\w+\.tmp)?")
_WINDOW = re.compile(r"\.?v(?P<version>\d+)-w\d+-e\d+\.parquet(\.json)?(\.\w+\.tmp)?")
_INPUT = re.compile(r"\.v(?P<version>\d+)(-rejected-w\d+)?\.parquet\.\w+\.tmp")
_HALF_WRITTEN = re.compile(r"\..+\.tmp")


def collect(
    folder: JobFolder, version: int, chunks: Iterable[ChunkRecord], merged: Iterable[str]
) -> None:
    """Remove spools, and parts and merged windows that SQL does not name, of one version.

    Only after the job has ended: as long as a version is worked on, a part that SQL does not
    name may be one whose commit is under way. Files of other versions are not touched, so a
    `retry` that opened the job again meanwhile loses nothing. What killed writers left half
    written goes too.

    Args:
        chunks: all chunks of the version.
        merged: the merged windows of the version that SQL names.

    Raises:
        StorageUnavailable: the storage is not there, or refuses.
    """
    windows = set(merged)
    keep = windows | {f"{path}.json" for path in windows}
    ended: set[str] = set()
    for chunk in chunks:
        ended.add(chunk.id)
        folder.remove(layout.spool_folder(chunk.id))
        if chunk.part is not None:
            keep.add(chunk.part)
    for name in folder.all_files(PARTS_FOLDER):
        match = _PART.fullmatch(name)
        if match and match["chunk"] in ended and f"{PARTS_FOLDER}/{name}" not in keep:
            folder.remove(f"{PARTS_FOLDER}/{name}")
    for name in folder.all_files(WINDOWS_FOLDER):
        match = _WINDOW.fullmatch(name)
        ours = match is not None and int(match["version"]) == version
        if ours and f"{WINDOWS_FOLDER}/{name}" not in keep:
            folder.remove(f"{WINDOWS_FOLDER}/{name}")
    for name in folder.all_files(INPUT_FOLDER):
        match = _INPUT.fullmatch(name)
        if match and int(match["version"]) <= version:
            folder.remove(f"{INPUT_FOLDER}/{name}")
    for name in folder.all_files(layout.version_folder(version)):
        if _HALF_WRITTEN.fullmatch(name):
            folder.remove(f"{layout.version_folder(version)}/{name}")
