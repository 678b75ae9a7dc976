"""Reading the answers of a job: a published version, or what there is so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import pyarrow as pa

from jobs import layout
from jobs.errors import OutputError, OutputNotReady
from jobs.gather import gathered
from jobs.job_folder import JobFolder
from jobs.manifest import manifest_files, read_manifest
from jobs.parts import job_schema, read_groups
from jobs.records import ChunkRecord, Counts, JobRecord, WindowSpec
from jobs.row_order import RowOrder
from jobs.states import JobState
from jobs.storage import Storage
from jobs.store import Store


class OutputRows(Protocol):
    """Output rows of a version of a job, in row order."""

    @property
    def job(self) -> JobRecord: ...

    @property
    def version(self) -> int: ...

    @property
    def schema(self) -> pa.Schema: ...

    def groups(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """Tables of a few thousand rows at most; `columns` None reads all of them.

        Raises:
            OutputError: a file is missing or damaged.
        """


class PublishedVersion:
    """A published version of a job; it never changes.

    Attributes:
        path: the folder that holds it; dataset readers can open it too.
        manifest: see docs/output.md.
    """

    def __init__(self, folder: JobFolder, job: JobRecord, version: int) -> None:
        self._folder = folder
        self.job = job
        self.version = version
        self.path = folder.at(layout.version_folder(version))
        self.manifest: dict[str, Any] = read_manifest(folder, version)
        self.schema = job_schema(folder, layout.input_copy(version))

    def groups(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        for part in self.parts():
            yield from part.groups(columns)

    def counts(self) -> Counts:
        """Outcomes and tokens of all its rows."""
        return sum((entry.counts for entry in manifest_files(self.manifest)), Counts())

    def parts(self) -> Iterator[PublishedPart]:
        """Its files, in row order; at most 65,536 rows each."""
        for entry in self.manifest["files"]:
            yield PublishedPart(self._folder, self, entry["path"])


class PublishedPart:
    """A file of a published version."""

    def __init__(self, folder: JobFolder, version: PublishedVersion, name: str) -> None:
        self._folder = folder
        self._path = f"{layout.version_folder(version.version)}/{name}"
        self.job = version.job
        self.version = version.version
        self.schema = version.schema

    def groups(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        yield from read_groups(self._folder, self._path, self.schema, columns)


class PartialOutput:
    """The rows that are known while a job runs: each once, in row order, with gaps."""

    def __init__(self, store: Store, storage: Storage, job: JobRecord) -> None:
        self._store = store
        self.job = job
        self.version = job.version
        self._folder = storage.job(job.folder)
        self.schema = job_schema(self._folder, layout.input_copy(job.version))

    def groups(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        job = self.job
        chunks: dict[int, list[ChunkRecord]] = {}
        for chunk in self._store.chunks(job.id, job.version):
            chunks.setdefault(chunk.window, []).append(chunk)
        for record in self._store.windows(job.id, job.version):
            with ExitStack() as stack:
                ours = chunks.get(record.window.ordinal, [])
                source = record.merged or self._gather(stack, record.window, ours)
                if isinstance(source, str):
                    yield from read_groups(self._folder, source, self.schema, columns)
                    continue
                for group in source.groups():
                    yield group if columns is None else group.select(columns)

    def _gather(
        self, stack: ExitStack, window: WindowSpec, chunks: Sequence[ChunkRecord]
    ) -> RowOrder | str:
        """The rows of a window, or its file, if it has been merged meanwhile.

        When the job has ended, the spools are removed that the rows were in until then.
        """
        try:
            rows = gathered(self._folder, window, chunks, self.version, self.job.model)
            order = stack.enter_context(rows)
        except OutputError:
            merged = self._merged_meanwhile(window)
            if merged is None:
                raise
            return merged
        return self._merged_meanwhile(window) or order

    def _merged_meanwhile(self, window: WindowSpec) -> str | None:
        now = self._store.job(self.job.id)
        if now.version == self.version and not now.state.terminal:
            return None
        records = self._store.windows(now.id, self.version)
        return next(r.merged for r in records if r.window.ordinal == window.ordinal)


def open_version(storage: Storage, job: JobRecord, version: int | None = None) -> PublishedVersion:
    """Open a published version of a job, the newest unless another is named.

    Raises:
        OutputNotReady: there is none (yet).
    """
    newest = job.published_version
    if newest is None:
        raise OutputNotReady(_why_not(job))
    if version is not None and not 1 <= version <= newest:
        raise OutputNotReady(f"job {job.id} has no version {version}; the newest is {newest}")
    folder = storage.job(job.folder)
    manifests = (layout.manifest(newest), layout.manifest(version or newest))
    if [folder.exists(path) for path in manifests] == [True, False]:
        raise OutputNotReady(
            f"version {version} of job {job.id} failed and was never published; the newest is "
            f"{newest}"
        )
    return PublishedVersion(folder, job, version or newest)


def open_partial(store: Store, storage: Storage, job: JobRecord) -> OutputRows:
    """What there is of the version that the job works on; all of it if it has ended."""
    if job.published_version == job.version:
        return open_version(storage, job)
    return PartialOutput(store, storage, job)


def _why_not(job: JobRecord) -> str:
    if job.state is JobState.FAILED:
        return f"job {job.id} failed and published nothing: {job.error_message}"
    return (
        f"job {job.id} is {job.state} and has published nothing yet; `pagemill wait {job.id}` "
        f"waits for it, `pagemill results {job.id} --partial` shows the rows that are done"
    )
