"""Each check of `pagemill doctor`, on what is well and on what is not."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from sqlalchemy import make_url

from jobs.doctor import disks, gpu_check, storage_check
from jobs.doctor.broker_check import check_broker
from jobs.doctor.computing_check import check_computing
from jobs.doctor.database_check import check_database
from jobs.doctor.findings import Finding, Level, well
from jobs.doctor.gpu_check import check_gpu
from jobs.doctor.running import Check, examine
from jobs.doctor.settings_check import check_settings
from jobs.doctor.storage_check import check_storage
from jobs.errors import BrokerError, DatabaseError, StorageError
from jobs.records import WorkerStatus
from jobs.settings import Settings
from jobs.storage import Storage
from jobs.store import Store
from tests.support import redis_server
from tests.support.deployment import wait_for
from tests.support.job_store import StoreUnderTest, new_job
from tests.support.postgres import administer
from tests.support.redis_server import RedisServer


@pytest.fixture(autouse=True)
def _a_machine_that_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room on its disks, however busy the real one is."""
    with_room(monkeypatch, 100 << 30)
    monkeypatch.setattr(storage_check, "_SLOW_SECONDS", 60.0)


def with_room(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    usage = shutil.disk_usage("/")._replace(free=free)
    monkeypatch.setattr(disks.shutil, "disk_usage", lambda _: usage)


def settings(home: Path, **values: str) -> Settings:
    named = {f"PAGEMILL_{name.upper()}": value for name, value in values.items()}
    return Settings.from_env({"PAGEMILL_HOME": str(home), **named})


def only(found: Iterable[Finding], level: Level, *words: str) -> Finding:
    """The only finding, which is of that level and says those words, with advice unless all is
    well."""
    (finding,) = found
    assert finding.level is level, finding
    assert all(word in f"{finding.found} {finding.advice}" for word in words), finding
    assert (finding.advice is None) == (level is Level.OK)
    return finding


# ---- side by side, with limits


def test_what_hangs_is_told_of_and_keeps_nobody() -> None:
    hanging = threading.Event()

    def hangs() -> Iterator[Finding]:
        yield well("disk", "the first thing")
        hanging.wait(600)

    def fails() -> Iterator[Finding]:
        raise DatabaseError("it is away")
        yield

    def breaks() -> Iterator[Finding]:
        yield well("broken", str(1 // int("0")))

    began = time.monotonic()
    found = list(
        examine(
            [
                Check("disk", hangs, 5, "mount it"),
                Check("other", hangs, 5, "mount it, too"),
                Check("database", fails, 300, "start it"),
                Check("broken", breaks, 300, ""),
                Check("well", lambda: [well("well", "quite")], 300, ""),
            ]
        )
    )
    took = time.monotonic() - began
    hanging.set()

    assert [(f.name, f.level.value) for f in found] == [
        ("disk", "ok"), ("disk", "fault"), ("disk", "ok"), ("other", "fault"),
        ("database", "fault"), ("broken", "fault"), ("well", "ok"),
    ]  # fmt: skip
    assert (found[1].found, found[1].advice) == ("no answer within 5 s", "mount it")
    assert (found[4].found, found[4].advice) == ("it is away", "start it")
    assert "ZeroDivisionError" in found[5].found
    assert took < 60


# ---- settings


def test_settings_that_are_well(tmp_path: Path) -> None:
    env = settings(tmp_path, retention="30d").to_env()
    only(check_settings(env | {"PAGEMILL_LOG_LEVEL": "info"}), Level.OK, "PAGEMILL_RETENTION")
    only(check_settings({"PATH": "/bin"}), Level.OK, "the defaults")


def test_a_setting_that_cannot_work() -> None:
    env = {"PAGEMILL_LEASE_SECONDS": "often"}
    only(check_settings(env), Level.FAULT, "PAGEMILL_LEASE_SECONDS is 'often'", "correct")


def test_a_setting_that_is_misspelled_is_found() -> None:
    only(
        check_settings({"PAGEMILL_DATABSE_URL": "x"}),
        Level.WARNING,
        "PAGEMILL_DATABSE_URL is set, and is no setting",
        "set PAGEMILL_DATABASE_URL if that was meant",
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("PAGEMILL_LEASE", "PAGEMILL_LEASE_SECONDS"),
        ("PAGEMILL_SPOOL", "PAGEMILL_SPOOL_SECONDS"),
        ("PAGEMIL_HOME", "PAGEMILL_HOME"),
        ("PAGE_MILL_DATABASE_URL", "PAGEMILL_DATABASE_URL"),
    ],
)
def test_a_setting_that_was_cut_short_or_misses_our_name_is_found(name: str, meant: str) -> None:
    found = check_settings({name: "4", "PATH": "/bin"})
    only(found, Level.WARNING, f"{name} is set", f"set {meant} if that was meant")


def test_every_variable_of_the_sources_is_known() -> None:
    """Else a setting that works would be called none."""
    import re

    root = Path(__file__).parents[2]
    named = {
        name
        for room in ("jobs", "worker", "engine", "kernels")
        for path in (root / room).rglob("*.py")
        for name in re.findall(r'"(PAGEMILL_[A-Z_]+[A-Z])"', path.read_text("utf-8"))
    }
    assert len(named) > 15
    for name in named:
        assert all("no setting" not in f.found for f in check_settings({name: ""})), name


# ---- the database


def test_a_database_that_is_well(database_url: str, tmp_path: Path) -> None:
    """Both kinds."""
    kind = "SQLite 3." if database_url.startswith("sqlite") else "PostgreSQL 1"

    found = {f.name: f for f in check_database(settings(tmp_path, database_url=database_url))}

    assert found["database"].level is Level.OK, found
    assert found["database"].found.startswith(kind)
    assert found["clock"].level is Level.OK
    assert (found["workers"].level, found["workers"].found) == (Level.WARNING, "none is alive")


def test_a_database_that_is_not_made_yet(tmp_path: Path) -> None:
    only(check_database(settings(tmp_path / "new")), Level.WARNING, "none yet", "first submit")
    named = settings(tmp_path, database_url=f"sqlite:///{tmp_path}/named.db")
    only(check_database(named), Level.FAULT, "named.db", "run `pagemill db upgrade`")
    assert not list(tmp_path.iterdir())


def test_a_place_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    only(check_database(settings(tmp_path / "new")), Level.FAULT, str(tmp_path), "permissions")
    only(check_storage(settings(tmp_path / "new")), Level.FAULT, str(tmp_path), "permissions")


def test_a_database_of_another_version(store: Store, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'from_the_future'")

    only(check_database(settings(tmp_path, database_url=url)), Level.FAULT, "from_the_future")


def test_a_database_that_cannot_be_written(store: Store, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError, match="locked"):
            list(check_database(settings(tmp_path, database_url=url)))


def test_a_user_who_may_only_read_is_found(migrated_postgres: str, tmp_path: Path) -> None:
    role = f"reader_{uuid.uuid4().hex[:8]}"
    there = make_url(migrated_postgres)
    administer(
        there, f"CREATE ROLE {role}", f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}"
    )
    try:
        url = there.update_query_dict({"options": f"-crole={role}"}).render_as_string(False)
        with pytest.raises(DatabaseError, match="permission denied"):
            list(check_database(settings(tmp_path, database_url=url)))
    finally:
        administer(there, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_clock_that_is_wrong(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = Store.now
    monkeypatch.setattr(Store, "now", lambda self: now(self) - timedelta(seconds=90))
    url = f"sqlite:///{tmp_path}/jobs.db"

    found = [f for f in check_database(settings(tmp_path, database_url=url)) if f.name == "clock"]

    only(found, Level.WARNING, "90 s apart", "NTP")


def test_an_sqlite_file_on_a_network_disk(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psutil

    class Disk:
        mountpoint = str(tmp_path.resolve())
        fstype = "nfs4"

    monkeypatch.setattr(psutil, "disk_partitions", lambda all: [Disk()])
    url = f"sqlite:///{tmp_path}/jobs.db"

    found = [
        f for f in check_database(settings(tmp_path, database_url=url)) if f.name == "database"
    ]

    only(found, Level.FAULT, "nfs4", "PostgreSQL")


# ---- workers


def workers_found(store: Store, tmp_path: Path) -> list[Finding]:
    url = f"sqlite:///{tmp_path}/jobs.db"
    found = check_database(settings(tmp_path, database_url=url))
    return [finding for finding in found if finding.name == "workers"]


def test_workers_and_their_models_are_named(store: Store, tmp_path: Path) -> None:
    import jobs

    store.register_worker("gpu-1:7:a", "llama", 4, jobs.__version__, WorkerStatus("ready"))

    only(workers_found(store, tmp_path), Level.OK, "1 alive: gpu-1:7:a of llama (ready)")


def test_a_job_that_nobody_serves_is_found(store: Store, tmp_path: Path) -> None:
    store.insert_job(new_job(model="llama"))
    paused = store.insert_job(new_job(model="other"))
    store.pause(paused.id)

    only(workers_found(store, tmp_path), Level.WARNING, "jobs for llama", "--model llama")


@pytest.mark.parametrize("others", [1, 2])
def test_a_job_whose_workers_are_busy_with_others(
    back: StoreUnderTest, tmp_path: Path, others: int
) -> None:
    import jobs

    store = back.store
    url = back.database.engine.url.render_as_string(hide_password=False)
    long = back.add((1, 1), model="llama")
    for number in range(2):
        store.register_worker(
            f"gpu-{number}:7:a", "llama", 1, jobs.__version__, WorkerStatus("ready")
        )
        assert store.claim_chunk(f"gpu-{number}:7:a", "llama") is not None
    waits = [back.add((1,), model="llama") for _ in range(others)][-1]

    def found() -> list[Finding]:
        every = check_database(settings(tmp_path, database_url=url))
        return [finding for finding in every if finding.name == "workers"]

    alive, slot = found()
    only([alive], Level.OK, "2 alive")
    only([slot], Level.OK, f"{waits.id} for llama waits for a free slot: 2 workers are busy with ")
    assert f"busy with {long.id}; a job of higher --priority" in slot.found

    store.register_worker("gpu-2:7:a", "llama", 1, jobs.__version__, WorkerStatus("ready"))
    only(found(), Level.OK, "3 alive")


def test_workers_of_another_version_are_found(store: Store, tmp_path: Path) -> None:
    store.register_worker("gpu-1:7:a", "llama", 4, "0.0.9", WorkerStatus("ready"))

    only(workers_found(store, tmp_path), Level.WARNING, "pagemill 0.0.9", "same version")


# ---- the broker


def test_no_broker_is_well(tmp_path: Path) -> None:
    only(check_broker(settings(tmp_path)), Level.OK, "none is configured")


def test_a_broker_that_is_well(tmp_path: Path) -> None:
    url = redis_server.shared_url()
    only(check_broker(settings(tmp_path, broker_url=url)), Level.OK, "Redis ", "127.0.0.1")


def test_a_broker_that_is_away_or_silent(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        ports = [redis_server.free_port(), silent.getsockname()[1]]
        for port in ports:
            url = f"redis://:secret@127.0.0.1:{port}/0"
            with pytest.raises(BrokerError) as caught:
                list(check_broker(settings(tmp_path, broker_url=url)))
            assert "secret" not in str(caught.value)


def test_a_replica_takes_no_messages(tmp_path: Path) -> None:
    options = ("--replicaof", "127.0.0.1", str(redis_server.free_port()))
    with RedisServer(tmp_path / "redis", *options) as server:
        found = list(check_broker(settings(tmp_path, broker_url=server.url)))
    only(found, Level.FAULT, "is a replica", "master")


def test_a_broker_that_is_almost_full(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis", "--maxmemory", "600kb") as server:
        found = list(check_broker(settings(tmp_path, broker_url=server.url)))
    only(found, Level.WARNING, "almost full", "maxmemory")


# ---- the storage


def test_a_storage_that_is_well_is_left_as_it_was(tmp_path: Path) -> None:
    made = settings(tmp_path)
    Storage(made.storage_url).new_job("job_a")
    before = sorted((tmp_path / "storage").iterdir())

    only(check_storage(made), Level.OK, "renamed", "GiB free")

    assert sorted((tmp_path / "storage").iterdir()) == before


def test_a_storage_that_is_not_there_or_empty(tmp_path: Path) -> None:
    made = settings(tmp_path)
    only(check_storage(made), Level.WARNING, "no folder", "first submit makes it")
    assert not (tmp_path / "storage").exists()
    (tmp_path / "storage").mkdir()
    only(check_storage(made), Level.WARNING, "empty of jobs", "not mounted")
    (tmp_path / "storage").rmdir()
    (tmp_path / "storage").touch()
    only(check_storage(made), Level.FAULT, "is no folder")


@pytest.mark.parametrize("url", ["s3://bucket/jobs", "gs://bucket", "file://srv/jobs"])
def test_a_storage_that_is_no_folder_is_not_taken_for_a_sick_disk(tmp_path: Path, url: str) -> None:
    """It is so whether the bucket is there, and may be written, or not: nobody asks for it."""
    made = settings(tmp_path, storage_url=url)
    check = Check("storage", lambda: check_storage(made), 20, storage_check.ADVICE)
    found = only(examine([check]), Level.FAULT, "PAGEMILL_STORAGE_URL is", "name a folder")
    assert "df -h" not in (found.advice or "")


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_disk_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    Storage(settings(tmp_path).storage_url).new_job("job_a")
    monkeypatch.setattr(os, call, refuse)

    with pytest.raises(StorageError, match="Read-only"):
        list(check_storage(settings(tmp_path)))
    assert not list((tmp_path / "storage").glob(".doctor*"))


@pytest.mark.parametrize(("free", "level"), [(1 << 20, Level.FAULT), (1 << 30, Level.WARNING)])
def test_a_disk_with_little_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: Level
) -> None:
    with_room(monkeypatch, free)
    Storage(settings(tmp_path).storage_url).new_job("job_a")

    only(check_storage(settings(tmp_path)), level, "only", "GiB free", "pagemill gc")


def test_a_storage_that_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Storage(settings(tmp_path).storage_url).new_job("job_a")
    monkeypatch.setattr(os, "fsync", lambda _: time.sleep(0.6))

    monkeypatch.setattr(storage_check, "_SLOW_SECONDS", 1.0)
    only(check_storage(settings(tmp_path)), Level.WARNING, " s to write", "faster disk")


# ---- the GPU


def nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_gpus_are_named_with_their_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "0, NVIDIA H200, 570.1, 143771, 4\\n1, NVIDIA H200, 570.1, [N/A], [N/A]\\n"
    nvidia_smi(tmp_path, monkeypatch, f"printf '{lines}'")

    first, second = check_gpu()

    assert first == well("gpu", "0: NVIDIA H200, driver 570.1, 4 of 143771 MiB used")
    assert second == well("gpu", "1: NVIDIA H200, driver 570.1")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Driver/library version mismatch'; exit 18", ("mismatch", "(18)", "restart")),
        ("true", ("lists no GPU", "--gpus all")),
        ("exec sleep 60", ("said nothing", "dmesg")),
    ],
)
def test_a_driver_that_is_sick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: tuple[str, ...]
) -> None:
    if "sleep" in script:
        monkeypatch.setattr(gpu_check, "_SECONDS", 0.5)
    nvidia_smi(tmp_path, monkeypatch, script)

    only(check_gpu(), Level.FAULT, *words)


def test_no_driver_is_well_unless_the_kernel_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gpu_check, "_DRIVER", tmp_path / "version")
    only(check_gpu(), Level.OK, "none", "CPU")
    (tmp_path / "version").touch()
    only(check_gpu(), Level.WARNING, "no nvidia-smi")


# ---- the process that knows torch


def computing(code: str, seconds: float = 20) -> list[Finding]:
    return list(check_computing(None, [sys.executable, "-c", code], seconds))


def test_what_the_other_process_finds_is_handed_on() -> None:
    line = '{"name": "torch", "level": "warning", "found": "old", "advice": "new"}'
    assert computing(f"print('{line}')") == [Finding("torch", Level.WARNING, "old", "new")]


LEFT_BEHIND = """
import os, sys, threading
from jobs.doctor.computing_check import check_computing

child = (
    "import json, os, time\\n"
    "told = dict(name='torch', level='ok', found=str(os.getpid()), advice='')\\n"
    "print(json.dumps(told), flush=True)\\n"
    "time.sleep(1000)\\n"
)
told = threading.Event()

def look():
    for finding in check_computing(None, [sys.executable, "-c", child]):
        print(finding.found, flush=True)
        told.set()

threading.Thread(target=look, daemon=True).start()
told.wait()
sys.exit(143)
"""


def test_another_process_does_not_outlive_a_command_that_is_ended() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", LEFT_BEHIND], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (143, "")
    wait_for("its end", lambda: not psutil.pid_exists(int(done.stdout)), timeout=60)


def test_another_process_that_dies_or_hangs_is_told_of() -> None:
    only(computing("raise ImportError('no torch here')"), Level.FAULT, "ended with 1", "no torch")
    only(computing("import os; os.abort()"), Level.FAULT, "ended with -6")
    only(computing("import time; time.sleep(20)", 0.5), Level.FAULT, "hung for 0.5 s")


def test_a_database_that_hangs_has_a_limit() -> None:
    """It takes connections and never answers."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/x?connect_timeout=3"
        made = Settings.from_env({"PAGEMILL_HOME": "/nowhere", "PAGEMILL_DATABASE_URL": url})
        check = Check("database", lambda: check_database(made), 0.5, "start it")
        only(examine([check]), Level.FAULT, "no answer within 0.5 s", "start it")


def test_a_database_that_is_away_is_a_fault_in_words(tmp_path: Path) -> None:
    url = f"postgresql://me:secret@127.0.0.1:{redis_server.free_port()}/x"
    made = settings(tmp_path, database_url=url)
    check = Check("database", lambda: check_database(made), 20, "start it")

    found = only(examine([check]), Level.FAULT, "check that the server runs", "start it")

    assert "secret" not in found.found


def test_a_database_that_was_not_made_or_has_no_driver_has_an_advice_of_its_own(
    migrated_postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = make_url(migrated_postgres).set(database="nodb").render_as_string(False)
    made = settings(tmp_path, database_url=url)
    check = Check("database", lambda: check_database(made), 20, "start it")

    missing = only(examine([check]), Level.FAULT, "does not exist", "createdb nodb")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    driver = only(examine([check]), Level.FAULT, "driver is not installed", "--editable")

    for finding in (missing, driver):
        assert "start it" not in f"{finding}"
        assert "install here" not in f"{finding}"
