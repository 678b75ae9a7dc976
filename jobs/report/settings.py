"""What two runs were told: all that may explain that they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from jobs import evaluation_shape
from jobs.report.provenance import Provenance

# A URL that is told of the end may be as good as a password, and changes no answer.
_NOT_SHOWN = frozenset({"version", "notify"})
_OF_JOB = "job"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that differs; None where a run has none."""

    name: str
    before: str | None
    now: str | None


def differences(before: Provenance, now: Provenance) -> tuple[Setting, ...]:
    """What was set otherwise, by name."""
    old, new = dict(_settings(before)), dict(_settings(now))
    names = [*new, *(name for name in old if name not in new)]
    found = [Setting(name, old.get(name), new.get(name)) for name in names]
    found = [setting for setting in found if setting.before != setting.now]
    asked = {_essence(setting) for setting in found if not setting.name.startswith(_OF_JOB)}
    # The job has what was asked for, too; only what it says beyond that is news.
    return tuple(s for s in found if not s.name.startswith(_OF_JOB) or _essence(s) not in asked)


def _essence(setting: Setting) -> tuple[str, str | None, str | None]:
    return setting.name.rpartition(".")[2], setting.before, setting.now


def shown_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A specification as it may be shown."""
    shown = evaluation_shape.shown_spec(spec)
    return {name: value for name, value in shown.items() if name not in _NOT_SHOWN}


def _settings(run: Provenance) -> Iterator[tuple[str, str]]:
    spec = shown_spec(run.evaluation.spec)
    spec.pop("gate", None)  # it judges scores, and changes none
    scorers = {s["name"]: s for s in spec.pop("scorers", ()) if isinstance(s, Mapping)}
    yield from _leaves("", spec)
    for name, scorer in scorers.items():
        options = scorer.get("options")
        yield f"scorer {name}", str(scorer.get("scorer"))
        yield from _leaves(f"scorer {name}", options if isinstance(options, Mapping) else {})
    facts = {
        "data set": run.evaluation.dataset_hash,
        "rows of the data set": run.evaluation.dataset_rows,
        "seed of the job": run.job.seed if run.job else None,
        "pagemill": run.software,
        "device": ", ".join(run.devices) or None,
    }
    yield from ((name, _text(value)) for name, value in facts.items() if value is not None)
    if run.job is not None:
        yield from _leaves(_OF_JOB, run.job.options)


def _leaves(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}" if name else str(key), inner)
    elif value is not None:
        yield name, _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
