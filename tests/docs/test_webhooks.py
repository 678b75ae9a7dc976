"""docs/webhooks.md: its receiver takes what is sent, and refuses what is not ours."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jobs.job_shape import job_json
from jobs.notifications import attempts, delivering, urls
from jobs.notifications.message import VERSION, message
from jobs.notifications.signing import signature
from jobs.records.evaluations import NotificationRecord, NotificationState
from jobs.states import TERMINAL
from jobs.store.notifications import KEPT_SECONDS
from tests.jobs.test_cli_panel import JOB
from tests.support.named_tests import page

pytestmark = pytest.mark.quick

PAGE = page("webhooks.md")
SECRET = "a-secret-of-the-receiver"
TOLD = NotificationRecord(
    id="dlv_1",
    subject="job_1:v1",
    event="job.completed",
    url="https://example.com/",
    body={"id": "job_1", "output": None},
    state=NotificationState.PENDING,
    attempts=1,
    next_at=datetime.now(UTC),
    error=None,
    created_at=datetime.now(UTC),
    delivered_at=None,
)
BODY = message(TOLD, Path("/storage"))


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def is_ours() -> Callable[..., bool]:
    (code,) = blocks("python")
    names: dict[str, Any] = {}
    exec(code, names)
    found: Callable[..., bool] = names["is_ours"]
    return found


def now() -> int:
    return int(time.time())


def test_what_is_told_is_taken(is_ours: Callable[..., bool]) -> None:
    assert is_ours(BODY, signature(BODY, [SECRET], now()), SECRET)
    # While the secret is changed.
    assert is_ours(BODY, signature(BODY, ["the-one-before-it", SECRET], now()), SECRET)


def test_what_is_not_ours_is_refused(is_ours: Callable[..., bool]) -> None:
    at = now()
    header = signature(BODY, [SECRET], at)
    assert not is_ours(BODY + b" ", header, SECRET)
    assert not is_ours(BODY, header, "another-secret-of-it")
    assert not is_ours(BODY, header.replace(f"t={at}", f"t={at + 1}"), SECRET)
    old = signature(BODY, [SECRET], at - 3600)
    assert not is_ours(BODY, old, SECRET)
    assert is_ours(BODY, old, SECRET, tolerance=7200)
    of_another_kind = header.replace("v1", "v0")
    for broken in ("", "t=", f"t={at}", f"t={at},v1=é", of_another_kind, f"{old},{header}"):
        assert not is_ours(BODY, broken, SECRET)


def test_the_message_has_the_keys_of_the_page() -> None:
    (shown,) = map(json.loads, blocks("json"))
    assert shown.keys() == json.loads(BODY).keys()
    assert shown["version"] == VERSION
    told = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))
    assert told == shown.keys()


def test_data_has_the_shape_of_a_job() -> None:
    (shown,) = map(json.loads, blocks("json"))
    expected = job_json(JOB, None)
    assert list(shown["data"]) == list(expected)
    for name in ("rows", "tokens", "device", "chunks"):
        assert shown["data"][name].keys() == expected[name].keys()


def test_events_and_numbers_are_those_of_the_code() -> None:
    for state in TERMINAL:
        assert f"`job.{state}`" in PAGE
    text = " ".join(PAGE.split())
    assert f"within {delivering.POST_SECONDS:g} seconds" in text
    assert f"begin with {attempts.FIRST_WAIT:g} seconds" in text
    assert f"up to {attempts.LONGEST_WAIT / 3600:g} hours" in text
    assert f"after {attempts.MAX_ATTEMPTS} attempts" in text
    assert f"`{attempts.GONE} Gone`" in PAGE
    assert f"after {KEPT_SECONDS / 86400:g} days" in text
    assert urls.MAX_URLS == 5
    assert "up to five times" in text
