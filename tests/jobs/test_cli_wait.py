"""`wait` ends with the job, with its timeout, or with what needs no worker."""

from __future__ import annotations

import pytest

from tests.support.command_line import GOOD, CommandLine, answer_all
from tests.support.played_job import PlayedJob

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("failing", "code", "sentence"), [(set(), 0, "3 of 3 rows"), ({2}, 1, "1 with errors")]
)
def test_wait_ends_with_what_became_of_the_rows(
    cli: CommandLine, failing: set[int], code: int, sentence: str
) -> None:
    job_id = cli.submit(*GOOD)
    answer_all(cli, job_id, failing)

    out, err = cli("wait", job_id, expect=code)

    assert out == ""
    assert sentence in err


def test_wait_without_the_exit_status_tells_only_that_it_has_ended(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)
    cli("wait", job_id, "--no-exit-status", "--timeout", "0.1", expect=124)
    answer_all(cli, job_id, {2})

    _, err = cli("wait", job_id, "--no-exit-status")
    assert "1 with errors" in err
    cli("wait", job_id, "--exit-status", expect=1)


def test_wait_for_a_failed_job(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)
    with cli.store() as store:
        store.fail_job(job_id, "model_unavailable", "there is no such model")

    _, err = cli("wait", job_id, expect=1)

    assert "there is no such model" in err


def test_wait_gives_up_after_its_timeout(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD)

    _, err = cli("wait", job_id, "--timeout", "0.1", expect=124)

    assert "not ended within 0.1 s" in err


def test_wait_finishes_what_needs_no_worker(cli: CommandLine) -> None:
    """All rows are answered, and the worker died before it finalized."""
    job_id = cli.submit(*GOOD)
    with cli.store() as store:
        PlayedJob(store, cli.storage, job_id).finish_all()

    cli("wait", job_id, "--timeout", "30")

    assert cli.json("status", job_id)["state"] == "completed"


def test_wait_expires_an_overdue_job_without_a_worker(cli: CommandLine) -> None:
    job_id = cli.submit(*GOOD, options=("--deadline", "0.01s"))

    _, err = cli("wait", job_id, "--timeout", "30", expect=2)

    assert "expired" in err
