"""What a worker's log and metrics say, as those read them who watch it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.support.deployment import RunningWorker, wait_for


def records(worker: RunningWorker) -> list[dict[str, Any]]:
    """Every line of the log; each must be an object. The last may not be complete yet."""
    return [json.loads(line) for line in worker.logged().splitlines(keepends=True) if "\n" in line]


def url_of(worker: RunningWorker) -> str:
    def found() -> Any:
        return next((r["url"] for r in records(worker) if r.get("event") == "metrics"), None)

    url: str = wait_for("the metrics", found)
    return url


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def scrape(url: str) -> dict[tuple[str, ...], float]:
    """Values by name, or by name and outcome or state, as Prometheus would read them."""
    return {
        (sample.name, *(sample.labels[x] for x in ("outcome", "state") if x in sample.labels)):
            sample.value
        for family in text_string_to_metric_families(get(url)[1])
        for sample in family.samples
        if sample.name.startswith("pagemill_") and not sample.name.endswith("_bucket")
    }  # fmt: skip
