"""Spooled rows are adopted only where nothing that decides an answer has changed."""

import dataclasses

import pytest

from engine.messages import Ready
from worker.fingerprint import LIBRARIES, fingerprint, library_versions

pytestmark = pytest.mark.quick

READY = Ready("/models/m", "rev", "float32", "float16", "cpu", 512, 16, 64, 0.1)


@pytest.mark.parametrize(
    "options",
    [
        {"sampling": {"n": 2}},
        {"sampling": {"logprobs": 0}},
        {"sampling": {"logprobs": 5}},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template_kwargs": {"enable_thinking": True}},
    ],
)
def test_every_option_of_the_job_is_in_it(lease, options):
    plain = dataclasses.replace(lease, options={})
    changed = dataclasses.replace(lease, options=options)
    assert fingerprint(changed, READY, "d") == fingerprint(changed, READY, "d")
    assert fingerprint(changed, READY, "d") != fingerprint(plain, READY, "d")


@pytest.mark.parametrize(
    "change",
    [{"revision": "x"}, {"dtype": "bfloat16"}, {"kv_dtype": "float32"}, {"max_model_len": 256},
     {"deterministic": True}],
)  # fmt: skip
def test_the_model_is_in_it_and_where_it_runs_is_not(lease, change):
    assert fingerprint(lease, dataclasses.replace(READY, **change), "d") != fingerprint(
        lease, READY, "d"
    )
    moved = dataclasses.replace(READY, model_path="/other", device="cuda:0", num_blocks=9)
    assert fingerprint(dataclasses.replace(lease, owner="you"), moved, "d") == fingerprint(
        lease, READY, "d"
    )


@pytest.fixture
def versions(monkeypatch):
    """Versions of the libraries, which a test may change."""
    found = dict.fromkeys(LIBRARIES, "1.0")
    monkeypatch.setattr("worker.fingerprint.version", found.__getitem__)
    library_versions.cache_clear()
    yield found
    library_versions.cache_clear()


@pytest.mark.parametrize("library", LIBRARIES)
def test_another_version_of_a_library_changes_it(lease, versions, library):
    before = fingerprint(lease, READY, "d")
    assert library_versions() == versions
    versions[library] += ".post1"
    library_versions.cache_clear()
    assert fingerprint(lease, READY, "d") != before


def test_a_library_that_is_not_there_has_no_version(lease, monkeypatch):
    monkeypatch.setattr("worker.fingerprint.LIBRARIES", ("no-such-library",))
    library_versions.cache_clear()
    assert library_versions() == {"no-such-library": None}
    assert fingerprint(lease, READY, "d")
    library_versions.cache_clear()
