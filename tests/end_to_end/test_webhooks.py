"""A real worker tells the end of its job by itself."""

from __future__ import annotations

import hashlib
import hmac

from tests.support.deployment import wait_for
from tests.support.receiver import receiving
from tests.support.scraping import records, scrape, url_of

ENGINE = ("--num-blocks", "64", "--max-model-len", "128", "--threads", "1")
SECRET = "a-secret-that-nobody-sees"


def test_a_worker_tells_the_end_and_run_does_not_tell_it_again(deployment, tiny_model, monkeypatch):
    monkeypatch.setitem(deployment.env, "PAGEMILL_WEBHOOK_SECRET", SECRET)
    rows = deployment.home / "rows.jsonl"
    rows.write_text('{"prompt": "One", "max_tokens": 4}\n')
    with receiving() as receiver:
        done = deployment.cli(
            "run", str(rows), "--model", str(tiny_model), *ENGINE,
            "--notify", f"{receiver.url}/hidden",
        )  # fmt: skip
        (request,) = receiver.requests
    data = request.json["data"]
    assert (request.json["event"], data["rows"]["completed"]) == ("job.completed", 1)
    at, _, signed = request.headers["Pagemill-Signature"].partition(",v1=")
    text = at.removeprefix("t=").encode() + b"." + request.body
    assert signed == hmac.new(SECRET.encode(), text, hashlib.sha256).hexdigest()

    log = (deployment.home / "storage" / "logs" / f"{data['id']}.log").read_text()
    assert f"job.completed of {data['id']}:v1 to http://localhost:{receiver.port}/***: taken" in log
    for said in (log, done.stdout, done.stderr):
        assert "hidden" not in said
        assert SECRET not in said


def test_the_metrics_of_a_worker_count_what_it_tells(deployment, tiny_model, monkeypatch):
    monkeypatch.setitem(deployment.env, "PAGEMILL_LOG_FORMAT", "json")
    with receiving() as receiver:
        receiver.answers = [410]
        rows = [{"prompt": "One", "max_tokens": 4}]
        job = deployment.submit(
            rows, tiny_model, "--notify", receiver.url, "--notify", f"{receiver.url}/2"
        )
        options = (*ENGINE, "--metrics-port", "0")
        with deployment.worker(tiny_model, *options) as worker:
            for event in ("notification_failed", "notified"):
                wait_for(event, lambda: any(r.get("event") == event for r in records(worker)))  # noqa: B023
            counts = scrape(url_of(worker))
    assert deployment.status(job)["state"] == "completed"
    names = ("notifications", "notification_failures", "notifications_given_up")
    assert [counts[f"pagemill_{name}_total",] for name in names] == [1, 1, 1]
