"""`cancel` and `retry`."""

from __future__ import annotations

import pytest

from jobs import finalize
from jobs.errors import StorageUnavailable
from jobs.records import Counts
from tests.support.command_line import GOOD, CommandLine, answer_all
from tests.support.played_job import PlayedJob

pytestmark = pytest.mark.quick


def test_cancel_without_a_worker_ends_the_job_at_once_and_is_idempotent(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)

    for _ in range(2):
        _, err = cli("cancel", job_id)
        assert "cancelled" in err
    assert cli.json("status", job_id)["state"] == "cancelled"
    assert cli.json("status", job_id)["rows"]["cancelled"] == 3
    cli("wait", job_id, expect=2)


def test_cancel_leaves_running_chunks_to_their_worker(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)
    with cli.store() as store:
        lease = PlayedJob(store, cli.storage, job_id).claim()

        _, err = cli("cancel", job_id)

        assert "is being cancelled" in err
        assert cli.json("status", job_id)["state"] == "cancelling"
        store.release_chunk(lease, Counts())
    cli("wait", job_id, "--timeout", "30", expect=2)


def test_a_cancel_that_cannot_be_published_yet_says_what_it_waits_for(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StorageUnavailable("the disk is full", "room in the storage")

    job_id = cli.submit(*GOOD)
    with monkeypatch.context() as full:
        full.setattr(finalize, "merge_window", refuse)
        _, err = cli("cancel", job_id)
        assert "is cancelled; what was answered is still to be published, and waits for room" in err
        assert "workers hand" not in err
        _, err = cli("delete", job_id, "--yes", expect=75)
        assert f"is finalizing; wait until it has ended (`pagemill wait {job_id}`)" in err
        assert "pagemill cancel" not in err


def test_a_completed_job_cannot_be_cancelled(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)
    answer_all(cli, job_id)

    _, err = cli("cancel", job_id, expect=75)

    assert "is completed" in err


def test_retry_prints_the_id_and_queues_the_failed_rows(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)
    answer_all(cli, job_id, failing={0, 2})

    out, err = cli("retry", job_id)

    assert out == f"{job_id}\n"
    assert "2 rows queued again, for version 2" in err
    assert f"pagemill worker --model the-model --exit-when-done {job_id}\n" in err
    answer_all(cli, job_id)
    cli("wait", job_id)
    assert cli.json("status", job_id)["published_version"] == 2


def test_retry_of_a_job_without_errors(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)
    answer_all(cli, job_id)

    _, err = cli("retry", job_id, expect=75)

    assert "nothing to retry" in err
