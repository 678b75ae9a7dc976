"""What an adapter reports, and that ours and transformers' do the same work."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.agreement import agreement
from benchmarks.peers.registry import BY_NAME, HERE, PAGEMILL, REFERENCE
from benchmarks.runs import RunFailed, Task, run_once
from tests.support.tiny_model import build_tiny_model

PROMPTS = [[1, 2, 3, 4, 5], [1, 2, 3, 9], [1, 2, 3, 4]]


@pytest.fixture
def adapter(monkeypatch) -> ModuleType:
    """The module, loaded by its path as in the environments of peers."""
    spec = importlib.util.spec_from_file_location("adapter", HERE / "adapter.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "adapter", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def workload(tmp_path) -> Path:
    path = tmp_path / "w.jsonl"
    lines = [
        {"ids": ids, "max_tokens": 4 + 3 * i, "ignore_eos": True} for i, ids in enumerate(PROMPTS)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


class Echo:
    """A peer that answers with the last token of the prompt, and remembers what it was asked."""

    def __init__(self, short: int = 0) -> None:
        self.asked: list[list[int]] = []
        self.primed: list[list[int]] = []
        self.short = short

    def generate(self, rows):
        self.asked += [row.ids for row in rows]
        return [[row.ids[-1]] * (row.max_tokens - self.short) for row in rows]

    def prime(self, rows):
        self.primed += [row.ids for row in rows]


def report(adapter, monkeypatch, workload: Path, load, *more: str) -> dict:
    output = workload.with_name("report.json")
    arguments = ["--model", "m", "--environment", "e", "--threads", "1", *more]
    arguments += ["--workload", str(workload), "--output", str(output)]
    monkeypatch.setattr(sys, "argv", ["adapter", *arguments])
    adapter.run(load, "pytest")
    return json.loads(output.read_text())


@pytest.mark.quick
def test_a_report_counts_tokens_and_keeps_a_sample(adapter, monkeypatch, workload):
    echo = Echo()
    found = report(adapter, monkeypatch, workload, lambda _: echo.generate, "--sample", "1")
    assert echo.asked == PROMPTS
    assert (found["rows"], found["generated_tokens"]) == (3, 4 + 7 + 10)
    assert found["outputs"] == [[5] * 4]
    assert found["prime_seconds"] is None
    assert found["peak_memory_mb"] > 0
    assert found["versions"] == {"pytest": pytest.__version__}


@pytest.mark.quick
def test_only_the_first_rows_are_asked(adapter, monkeypatch, workload):
    echo = Echo()
    found = report(adapter, monkeypatch, workload, lambda _: echo.generate, "--rows", "2")
    assert (echo.asked, found["rows"]) == (PROMPTS[:2], 2)


@pytest.mark.quick
def test_priming_answers_one_prompt_before_the_clock_starts(adapter, monkeypatch, workload):
    echo = Echo()
    found = report(adapter, monkeypatch, workload, lambda _: echo.generate, "--primed")
    assert echo.asked == [PROMPTS[0], *PROMPTS]
    assert found["prime_seconds"] >= 0
    assert found["generated_tokens"] == 4 + 7 + 10


@pytest.mark.quick
def test_a_peer_may_prime_in_its_own_way(adapter, monkeypatch, workload):
    echo = Echo()
    load = lambda _: (echo.generate, echo.prime)  # noqa: E731
    report(adapter, monkeypatch, workload, load)
    assert echo.primed == []
    report(adapter, monkeypatch, workload, load, "--primed")
    assert echo.primed == PROMPTS
    assert echo.asked == PROMPTS * 2


@pytest.mark.quick
def test_a_peer_that_did_less_work_gives_no_figures(adapter, monkeypatch, workload):
    with pytest.raises(SystemExit, match="row 0: 3 tokens came, 4 were asked for"):
        report(adapter, monkeypatch, workload, lambda _: Echo(short=1).generate)


@pytest.mark.quick
def test_the_common_prefix_leaves_each_prompt_a_token(adapter):
    def prefix(*prompts: list[int]) -> list[int]:
        return adapter.common_prefix([adapter.Row(p, 1) for p in prompts])

    assert prefix(*PROMPTS) == [1, 2, 3]
    assert prefix([1, 2], [1, 2]) == [1]
    assert prefix([1, 2, 3], [1, 2]) == [1]
    assert prefix([1], [2, 3]) == []


def test_all_that_run_in_our_environment_say_the_same(workload, tmp_path_factory):
    model = build_tiny_model(tmp_path_factory.mktemp("tiny"))
    task = Task(model, workload, threads=1, timeout=300)
    reference = run_once(REFERENCE, task)
    assert [len(tokens) for tokens in reference["outputs"]] == [4, 7, 10]
    for peer in (PAGEMILL, BY_NAME["transformers-generate"]):
        found = run_once(peer, task)
        assert agreement(reference["outputs"], found["outputs"])["equal"] == 3
        assert found["tokens_per_second"] > 0
        assert found["peak_memory_mb"] > 100


@pytest.mark.quick
def test_a_run_that_takes_too_long_is_given_up(workload, monkeypatch):
    monkeypatch.setattr(
        type(PAGEMILL), "command", lambda _: [sys.executable, "-c", "import time; time.sleep(60)"]
    )
    with pytest.raises(RunFailed, match="pagemill was not done after 0 s"):
        run_once(PAGEMILL, Task(Path("m"), workload, threads=1, timeout=0.2))
