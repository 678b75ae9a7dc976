"""Where numbers come from: the job, its tokens and devices, and what two runs were told."""

from __future__ import annotations

import pytest

import jobs
from jobs import finalize
from jobs.report.data import gather
from jobs.report.page import render
from jobs.report.provenance import provenance
from jobs.report.settings import Setting, differences
from jobs.storage import Storage
from jobs.store import Store
from tests.support.made_evaluations import MadeEvaluations, a_row, a_spec
from tests.support.made_series import score
from tests.support.parsed_page import parsed
from tests.support.played_job import PlayedJob, Window, add_job

pytestmark = pytest.mark.quick


def answered(store: Store, storage: Storage) -> PlayedJob:
    """A job of four rows that has ended."""
    played = add_job(store, storage, [Window([[0, 1, 2, 3]])])
    played.finish_all()
    finalize.drive(store, storage, "f", played.id)
    return played


def facts_of(store: Store, storage: Storage) -> dict[str, str]:
    root = parsed(render(gather(store, storage, None, None, 30, 50)))
    section = root.one("section", **{"aria-labelledby": "origin"})
    names, values = ([e.text for e in section.all(tag)] for tag in ("dt", "dd"))
    return dict(zip(names, values, strict=True))


def test_the_job_is_named_with_what_it_took(
    made: MadeEvaluations, store: Store, storage: Storage
) -> None:
    job, judge = answered(store, storage), answered(store, storage)
    made.add(
        rows=[a_row(0, "a", exact=1.0)], scores=[score("exact", 1.0)],
        job_id=job.id, judge_jobs={"grade": judge.id},
    )  # fmt: skip

    facts = facts_of(store, storage)

    assert facts["answering job"] == job.id
    assert facts["tokens"] == "16 of prompts (8 from the prefix cache), 12 of answers"
    assert facts["judge of grade"].startswith(f"{judge.id}, the-model; 16 of prompts")
    assert facts["pagemill"] == jobs.__version__
    assert facts["data set"] == f"{'d' * 64} (SHA-256)"
    assert facts["device"] == "no longer known"

    store.delete_job(job.id)
    facts = facts_of(store, storage)
    assert facts["answering job"] == f"{job.id} (it is gone)"
    assert "tokens" not in facts
    assert facts["pagemill"] == "no longer known"


def test_settings_that_differ_are_said_once(
    made: MadeEvaluations, store: Store, storage: Storage
) -> None:
    one = a_spec(submit={"max_tokens": 16, "stop": ["\n"]}, seed=0, notify=["https://a.example/x"])
    other = a_spec(
        submit={"max_tokens": 32, "stop": ["\n"], "top_p": 0.5}, seed=1, gate=None,
        scorers=[{"name": "exact", "scorer": "exact", "options": {"strip": False}}],
        inputs=["s3://key:secret@bucket/rows.jsonl"], notify=[],
    )  # fmt: skip
    jobs_of_both = [answered(store, storage).id for _ in range(2)]
    before, now = (
        provenance(store, storage, made.record(made.add(spec=spec, job_id=job)))
        for spec, job in zip((one, other), jobs_of_both, strict=True)
    )

    found = {setting.name: setting for setting in differences(before, now)}

    assert found.keys() == {
        "inputs", "submit.max_tokens", "submit.top_p", "seed", "scorer exact.strip",
    }  # fmt: skip
    assert found["submit.max_tokens"] == Setting("submit.max_tokens", "16", "32")
    assert found["submit.top_p"] == Setting("submit.top_p", None, "0.5")
    assert found["scorer exact.strip"] == Setting("scorer exact.strip", None, "false")
    assert "secret" not in str(found["inputs"].now)
    assert differences(before, before) == ()
