"""`--notify` and `pagemill notifications`, with a real receiver."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import jobs
from jobs import finalize
from jobs.cli.deployment import Deployment
from jobs.records import JobRecord
from jobs.store import Store
from tests.support.command_line import CommandLine
from tests.support.played_job import MODEL, PlayedJob
from tests.support.receiver import Receiver, closed_port, receiving

ROW = {"prompt": "one"}
SECRET = "topsecret"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def submitted(cli: CommandLine, *urls: str) -> str:
    return cli.submit(ROW, options=tuple(word for url in urls for word in ("--notify", url)))


def end(cli: CommandLine, job_id: str) -> None:
    """Answer everything, as a worker would that tells nobody."""
    with cli.store() as store:
        PlayedJob(store, cli.storage, job_id).finish_all()
        finalize.drive(store, cli.storage, "worker")


def ended(cli: CommandLine, *urls: str) -> str:
    job_id = submitted(cli, *urls)
    end(cli, job_id)
    return job_id


# ---- submit


def test_the_urls_reach_the_job_and_are_not_shown(cli: CommandLine, receiver: Receiver) -> None:
    url = f"{receiver.url}/{SECRET}"
    job_id = submitted(cli, url, "https://us:pw@example.com:8443/x?key=1")
    with cli.store() as store:
        assert store.job(job_id).notify_urls == (url, "https://us:pw@example.com:8443/x?key=1")
    hosts = [f"http://localhost:{receiver.port}/***", "https://example.com:8443/***"]
    shape = cli.json("status", job_id)
    assert (shape["notify"], shape["notifications"]) == (hosts, [])
    out, _ = cli("status", job_id)
    assert [line.split(maxsplit=1)[1] for line in out.splitlines() if line.startswith("tells")] == [
        f"{host}, once it has ended" for host in hosts
    ]
    assert SECRET not in out + json.dumps(shape)


def test_the_urls_do_not_decide_the_answers(cli: CommandLine) -> None:
    job_ids = [
        cli.submit(ROW, options=("--seed", "1", *more))
        for more in ((), ("--notify", "https://example.com/"))
    ]
    with cli.store() as store:
        first, second = map(store.job, job_ids)
        assert first.fingerprint == second.fingerprint
        assert first.options == second.options


def test_the_same_key_with_other_urls_is_the_same_job(cli: CommandLine) -> None:
    job_id = cli.submit(ROW, options=("--idempotency-key", "k", "--notify", "https://a.example/"))
    again = cli.submit(ROW, options=("--idempotency-key", "k", "--notify", "https://b.example/"))
    assert again == job_id
    assert cli.json("status", job_id)["notify"] == ["https://a.example/"]


def test_a_url_that_cannot_be_told_is_refused(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(url: str) -> str:
        return cli("submit", "-", "--model", "m", "--notify", url, expect=64, stdin="{}")[1]

    assert "must begin with https:// or http://" in refused(f"ftp://example.com/{SECRET}")
    monkeypatch.setenv("PAGEMILL_WEBHOOK_HOSTS", "*.example.com")
    said = refused(f"http://169.254.169.254/{SECRET}")
    assert "--notify http://169.254.169.254/***: its host is not among those of PAGEMILL_" in said
    assert SECRET not in said
    assert cli.json("list") == []
    cli(
        "submit", "-", "--model", "m", "--notify", "https://a.example.com/", stdin='{"prompt": "a"}'
    )


def test_the_api_takes_one_url_or_several(cli: CommandLine) -> None:
    urls = ["https://a.example/x", "https://b.example/"]
    assert jobs.submit([ROW], model="m", notify=urls[0]).status().notify == (
        "https://a.example/***",
    )
    status = jobs.submit([ROW], model="m", notify=urls).status()
    assert status.notify == ("https://a.example/***", "https://b.example/")
    with pytest.raises(jobs.UsageError, match="must begin with https://"):
        jobs.submit([ROW], model="m", notify=["a.example"])


# ---- those who see the end tell it


def test_wait_tells_the_end(cli: CommandLine, receiver: Receiver) -> None:
    job_id = ended(cli, receiver.url)
    _, err = cli("wait", job_id)
    cli("wait", job_id)
    (request,) = receiver.requests
    assert request.json["data"]["output"] == cli.json("status", job_id)["output"]
    assert "notification" not in err
    (told,) = cli.json("status", job_id)["notifications"]
    assert (told["state"], told["attempts"], told["error"]) == ("delivered", 1, None)
    assert told["url"] == f"http://localhost:{receiver.port}/***"
    assert told["id"] == request.headers["Pagemill-Delivery"]
    assert (told["next_at"], told["delivered_at"] is None) == (None, False)
    out, _ = cli("status", job_id)
    assert f"http://localhost:{receiver.port}/***: delivered" in out


def test_what_is_not_taken_does_not_fail_the_command(cli: CommandLine) -> None:
    with closed_port() as url:
        job_id = ended(cli, f"{url}/{SECRET}")
        _, err = cli("wait", job_id)
    assert "has not taken the notification dlv_" in err
    assert f"connection refused; `pagemill notifications {job_id}` shows" in err
    assert SECRET not in err


def test_no_error_of_telling_fails_the_command(
    cli: CommandLine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = ended(cli, receiver.url)

    def break_down(*_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(Store, "claim_notification", break_down)
    _, err = cli("wait", job_id)
    assert f"The end of job {job_id} could not be told to its URLs: unforeseen" in err


def test_cancel_tells_the_end(cli: CommandLine, receiver: Receiver) -> None:
    job_id = submitted(cli, receiver.url)
    cli("cancel", job_id)
    (request,) = receiver.requests
    assert (request.json["event"], request.json["data"]["id"]) == ("job.cancelled", job_id)


def test_the_wait_of_the_api_tells_the_end(cli: CommandLine, receiver: Receiver) -> None:
    job = jobs.submit([ROW], model=MODEL, notify=receiver.url)
    end(cli, job.id)
    (told,) = job.wait(progress=False).notifications
    assert (told.state, told.event) == ("delivered", "job.completed")
    assert told.delivered_at is not None
    assert told.delivered_at.tzinfo is not None
    assert len(receiver.requests) == 1


def test_run_tells_the_end(
    cli: CommandLine, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here its worker is played, and told nobody."""

    def play(deployment: Deployment, job: JobRecord, *_: object) -> object:
        end(cli, job.id)
        return deployment.store.job(job.id)

    monkeypatch.setattr("jobs.cli.run.answer", play)
    cli(
        "run", "-", "--model", MODEL, "--notify", receiver.url,
        stdin=json.dumps(ROW) + "\n",
    )  # fmt: skip
    assert [request.json["event"] for request in receiver.requests] == ["job.completed"]


# ---- notifications


def test_there_are_none(cli: CommandLine) -> None:
    assert cli("notifications") == ("", "no notifications\n")
    assert cli.json("notifications") == []
    assert cli("notifications", "--failed")[1] == "no such notifications\n"


def test_they_are_listed(cli: CommandLine, receiver: Receiver) -> None:
    receiver.answers = [410, 500]
    gone = ended(cli, f"{receiver.url}?{SECRET}")
    cli("wait", gone)
    job_id = ended(cli, receiver.url)
    cli("wait", job_id)

    newest, oldest = cli.json("notifications")
    assert (oldest["subject"], oldest["state"]) == (f"{gone}:v1", "failed")
    assert oldest["error"] == "HTTP 410: it wants no more of it"
    assert (newest["subject"], newest["state"], newest["error"]) == (
        f"{job_id}:v1",
        "pending",
        "HTTP 500",
    )
    assert newest["next_at"] is not None
    assert cli.json("notifications", "--failed") == [oldest]
    assert cli.json("notifications", job_id[:-3]) == [newest]
    assert cli.json("notifications", "--limit", "1") == [newest]
    out, _ = cli("notifications")
    assert "given up after 1 attempt: HTTP 410" in " ".join(out.split())
    assert newest["id"] in out
    assert SECRET not in out + json.dumps(oldest)


def test_those_of_a_deleted_job_by_its_whole_id(cli: CommandLine, receiver: Receiver) -> None:
    job_id = ended(cli, receiver.url)
    cli("delete", job_id, "--yes")
    assert len(cli.json("notifications", job_id)) == 1
    assert "there is no job" in cli("notifications", job_id[:-3], expect=66)[1]
    assert "there is no evaluation" in cli("notifications", "eval_abcdefgh", expect=66)[1]


def test_one_is_sent_again(cli: CommandLine, receiver: Receiver) -> None:
    receiver.answers = [410, 500, 204, 204]
    job_id = ended(cli, receiver.url)
    cli("wait", job_id)
    (told,) = cli.json("notifications")
    _, err = cli("notifications", "--send-again", told["id"], expect=1)
    assert "pending after 1 attempt: HTTP 500" in err
    _, err = cli("notifications", "--send-again", told["id"])
    assert f"{told['id']} to http://localhost:{receiver.port}/***: delivered" in err
    # Once more, although it was taken: the receiver may have lost it.
    again = json.loads(cli("notifications", "--send-again", told["id"], "--json")[0])
    assert (again["id"], again["state"]) == (told["id"], "delivered")
    assert {r.headers["Pagemill-Delivery"] for r in receiver.requests} == {told["id"]}
    assert len(receiver.requests) == 4


def test_what_cannot_be_sent_again(cli: CommandLine) -> None:
    assert "there is no notification 'dlv_x'" in cli(
        "notifications", "--send-again", "dlv_x", expect=66
    )[1]  # fmt: skip
    assert "give nothing but its id" in cli(
        "notifications", "job_abcdefgh", "--send-again", "dlv_x", expect=64
    )[1]  # fmt: skip
