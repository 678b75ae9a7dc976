"""What the state machine of the job queue knows, sees, and checks at every moment."""

from __future__ import annotations

from collections import Counter, defaultdict

from sqlalchemy import select, text

from jobs import tables
from jobs.database import Database
from jobs.records import ChunkLease, ChunkRecord, Counts, JobRecord, MergeLease, WindowRecord
from jobs.states import CHUNK_MOVES, HAS_WORK, JOB_MOVES, TERMINAL, ChunkState, JobState
from jobs.store import events, rows
from tests.support.job_store import StoreUnderTest

OPEN = (ChunkState.QUEUED, ChunkState.RUNNING)
OUTCOMES = ("completed", "failed", "cancelled", "expired")

SQLITE_TRIGGERS = """
CREATE TABLE moves (source TEXT, target TEXT, kind TEXT);
CREATE TRIGGER job_moves AFTER UPDATE OF state ON jobs WHEN OLD.state <> NEW.state
BEGIN INSERT INTO moves VALUES (OLD.state, NEW.state, 'job'); END;
CREATE TRIGGER chunk_moves AFTER UPDATE OF state ON chunks
BEGIN INSERT INTO moves VALUES (OLD.state, NEW.state, 'chunk'); END;
"""
POSTGRES_TRIGGERS = """
CREATE TABLE moves (source TEXT, target TEXT, kind TEXT);
CREATE FUNCTION write_move() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN INSERT INTO moves VALUES (OLD.state, NEW.state, TG_ARGV[0]); RETURN NULL; END$$;
CREATE TRIGGER job_moves AFTER UPDATE OF state ON jobs FOR EACH ROW
WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION write_move('job');
CREATE TRIGGER chunk_moves AFTER UPDATE OF state ON chunks FOR EACH ROW
EXECUTE FUNCTION write_move('chunk');
"""


def add_triggers(url: str, statements: list[str]) -> None:
    database = Database(url)
    with database.begin() as connection:
        for statement in statements:
            if statement.strip():
                connection.exec_driver_sql(statement)
    database.close()


class JobQueueModel:
    """A store, what was done to it, and what it has to be in."""

    def __init__(self, back: StoreUnderTest) -> None:
        self.back = back
        self.store = back.store
        # Counts of a job when its version began; and, from its end on, as they were published.
        self.base: dict[str, Counts] = {}
        self.published: dict[str, Counts] = {}
        # Counts of the newest version that was published, also while a later one is worked on.
        self.newest: dict[str, Counts] = {}
        self.refused: dict[str, int] = {}
        self.commits: Counter[str] = Counter()
        self.newest_finalization: dict[str, int] = {}
        self.deleted: set[str] = set()

    def publish(self, job_id: str, counts: Counts) -> None:
        self.published[job_id] = self.newest[job_id] = counts

    # ---- what there is

    def snapshot(
        self,
    ) -> tuple[list[JobRecord], dict[str, list[ChunkRecord]], dict[str, list[WindowRecord]]]:
        """All jobs, and the chunks and windows of their versions, at one moment."""
        chunks_of: dict[str, list[ChunkRecord]] = defaultdict(list)
        windows_of: dict[str, list[WindowRecord]] = defaultdict(list)
        with self.back.database.read() as connection:
            jobs = [rows.job_record(row) for row in connection.execute(select(tables.jobs))]
            version = {job.id: job.version for job in jobs}
            for chunk in map(rows.chunk_record, connection.execute(select(tables.chunks))):
                if chunk.version == version[chunk.job_id]:
                    chunks_of[chunk.job_id].append(chunk)
            for window in map(rows.window_record, connection.execute(select(tables.windows))):
                if window.version == version[window.job_id]:
                    windows_of[window.job_id].append(window)
        return jobs, chunks_of, windows_of

    def all_jobs(self) -> list[JobRecord]:
        return self.store.list_jobs(limit=1000)

    def chunk(self, lease: ChunkLease) -> ChunkRecord:
        chunks = self.store.chunks(lease.job_id, lease.version)
        return next(chunk for chunk in chunks if chunk.id == lease.chunk_id)

    def holds(self, lease: ChunkLease) -> bool:
        if lease.job_id in self.deleted:
            return False
        chunk = self.chunk(lease)
        return (chunk.state, chunk.lease_epoch, chunk.lease_owner) == (
            ChunkState.RUNNING,
            lease.epoch,
            lease.owner,
        )

    def may_finish(self, lease: MergeLease) -> bool:
        """Whether a merge lease was neither lost nor used up."""
        job = self.store.job(lease.job_id)
        if job.version != lease.version or job.state in TERMINAL:
            return False
        if lease.window is None:
            newest = self.newest_finalization[lease.job_id]
            return job.state == JobState.FINALIZING and lease.epoch == newest
        window = self.store.windows(lease.job_id)[lease.window.ordinal]
        return window.merged is None and window.epoch == lease.epoch

    def to_publish(self, job: JobRecord, spooled: int) -> tuple[Counts, int]:
        """Counts as finalization would find them, and failed rows that no commit told of.

        Args:
            spooled: so many rows of stopped chunks, at most, had failed.
        """
        chunks = self.store.chunks(job.id, job.version)
        stopped = sum(chunk.rows for chunk in chunks if chunk.state == ChunkState.STOPPED)
        failed = min(spooled, stopped)
        rest = {job.stop_reason: stopped - failed} if job.stop_reason else {}
        return job.counts + Counts(failed=failed, **rest), failed

    # ---- what must hold at every moment

    def the_tables_agree(self) -> None:
        jobs, chunks_of, windows_of = self.snapshot()
        for job in jobs:
            chunks, windows = chunks_of[job.id], windows_of[job.id]
            self.chunks_left_is_right(job, chunks, windows)
            self.counts_are_those_of_what_was_committed(job, chunks)
            self.only_a_job_that_works_has_open_chunks(job, chunks)
            self.the_views_agree(job, chunks)
            assert job.paused_at is None or job.state in HAS_WORK
            self.the_events_tell_its_state(job)
            self.each_end_is_told_once(job)
        assert all(number <= 1 for number in self.commits.values())

    def the_events_tell_its_state(self, job: JobRecord) -> None:
        """Whatever was done to it, the last thing is written down."""
        passing = ("requeued", *events.COUNTED)
        told = [e.event for e in self.store.events(job.id) if e.event not in passing]
        states = {
            "submitted": {JobState.QUEUED},
            "retried": {JobState.QUEUED},
            "started": {JobState.IN_PROGRESS},
            "paused": set(HAS_WORK),
            "resumed": set(HAS_WORK),
            "cancel_requested": {JobState.CANCELLING},
            "deadline_passed": {JobState.CANCELLING},
        }
        assert told[0] == "submitted"
        assert job.state in states.get(told[-1], {told[-1]})
        assert (told[-1] == "paused") == (job.paused_at is not None)

    def each_end_is_told_once(self, job: JobRecord) -> None:
        """Of each version that ended, as it ended."""
        told = {n.subject: n for n in self.store.notifications(job.id, limit=1000)}
        ended = range(1, job.version + job.state.terminal)
        assert set(told) == {f"{job.id}:v{version}" for version in ended}
        if job.state.terminal:
            last = told[f"{job.id}:v{job.version}"]
            assert last.event == f"job.{job.state}"
            assert last.body["rows"]["completed"] == job.counts.completed
            assert last.body["chunks"]["left"] == job.chunks_left

    def chunks_left_is_right(
        self, job: JobRecord, chunks: list[ChunkRecord], windows: list[WindowRecord]
    ) -> None:
        open_chunks = [chunk for chunk in chunks if chunk.state in OPEN]
        assert job.chunks_left == len(open_chunks)
        assert job.chunks_total == len(chunks)
        left = Counter(chunk.window for chunk in open_chunks)
        for window in windows:
            assert window.chunks_left == left[window.window.ordinal]

    def counts_are_those_of_what_was_committed(
        self, job: JobRecord, chunks: list[ChunkRecord]
    ) -> None:
        expected = self.published.get(job.id)
        if expected is None:
            done = [chunk.counts for chunk in chunks if chunk.part is not None]
            expected = sum(done, start=self.base[job.id])
        assert job.counts == expected

    def the_views_agree(self, job: JobRecord, chunks: list[ChunkRecord]) -> None:
        (seen,) = self.back.view("job_progress", job.id)
        progress = self.store.progress(job.id)
        assert {f"rows_{name}": seen[f"rows_{name}"] for name in OUTCOMES} == {
            f"rows_{name}": getattr(progress.counts, name) for name in OUTCOMES
        }
        assert seen["rows_done"] == progress.counts.rows
        assert seen["completion_tokens"] == progress.counts.completion_tokens
        assert (seen["chunks_done"], seen["chunks_running"], seen["chunks_queued"]) == (
            progress.chunks_done,
            progress.chunks_running,
            sum(chunk.state == ChunkState.QUEUED for chunk in chunks),
        )
        assert progress.chunks_done == sum(chunk.state == ChunkState.DONE for chunk in chunks)
        errors = self.back.view("job_errors", job.id)
        rows = {error["code"]: error["rows"] for error in errors if error["scope"] == "row"}
        assert sum(rows.values()) == job.counts.failed + job.counts.cancelled + job.counts.expired
        assert "not_recorded" not in rows
        assert rows.get("invalid_json", 0) == self.refused[job.id]
        assert len(errors) == len(rows) + (job.state == JobState.FAILED)

    def only_a_job_that_works_has_open_chunks(
        self, job: JobRecord, chunks: list[ChunkRecord]
    ) -> None:
        states = {chunk.state for chunk in chunks}
        if ChunkState.QUEUED in states:
            assert job.state in (JobState.QUEUED, JobState.IN_PROGRESS)
        if ChunkState.RUNNING in states:
            assert job.state in (JobState.IN_PROGRESS, JobState.CANCELLING)

    def all_moves_are_legal(self) -> None:
        with self.back.database.begin() as connection:
            moves = connection.execute(text("SELECT DISTINCT kind, source, target FROM moves"))
            for kind, source, target in moves.all():
                if kind == "job":
                    assert JobState(target) in JOB_MOVES[JobState(source)]
                else:
                    assert ChunkState(target) in CHUNK_MOVES[ChunkState(source)]
            connection.execute(text("DELETE FROM moves"))
