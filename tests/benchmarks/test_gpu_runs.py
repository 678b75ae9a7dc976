"""How the scripts of the GPU run their items: in processes of their own, within their time."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from benchmarks.gpu import supervisor
from benchmarks.gpu.child import run_items
from benchmarks.gpu.command import Script, main
from benchmarks.gpu.device import Cuda, Times, busy_share
from benchmarks.gpu.items import FAILED, NOT_RUN, PASSED, Item, NotHere, Outcome, Surroundings
from benchmarks.gpu.supervisor import Supervisor, as_json

MODULE = "tests.benchmarks.test_gpu_runs"


def fails(given: Surroundings) -> dict[str, Any]:
    raise ValueError("two is not three")


def is_absent(given: Surroundings) -> dict[str, Any]:
    raise NotHere("needs 9 GiB")


def dies(given: Surroundings) -> dict[str, Any]:
    print("the last words", file=sys.stderr, flush=True)
    os._exit(9)


def hangs(given: Surroundings) -> dict[str, Any]:
    time.sleep(600)
    return {}


ITEMS = (
    Item("first", "a", lambda given: {"gb": 3.0}),
    Item("wrong", "a", fails),
    Item("absent", "a", is_absent),
    Item("deadly", "a", dies),
    Item("after", "a", lambda given: {"known": given.known["first"]["gb"]}),
    Item("endless", "b", hangs, limit=0.5),
    Item("noisy", "b", lambda given: print("@nothing of ours", given.device.dry) or {}),
)


def of_names(*names: str) -> list[Item]:
    return [item for item in ITEMS if item.name in names]


def run(*names: str, budget: float = 60.0, at_once: int = 1) -> dict[str, Outcome]:
    found = Supervisor(MODULE, of_names(*names), budget=budget, dry=True).run(at_once)
    return {outcome.name: outcome for outcome in found}


def test_what_fails_or_dies_stops_nothing_else() -> None:
    found = run("first", "wrong", "absent", "deadly", "after")
    assert [outcome.status for outcome in found.values()] == [
        PASSED, FAILED, NOT_RUN, FAILED, PASSED,
    ]  # fmt: skip
    assert "two is not three" in found["wrong"].message
    assert found["absent"].message == "needs 9 GiB"
    assert "exit code 9" in found["deadly"].message
    assert "the last words" in found["deadly"].message
    assert found["after"].figures == {"known": 3.0}, "a later process knows the earlier figures"


def test_what_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_START_SECONDS", 4.0)
    found = run("endless", "noisy")
    assert found["endless"].status == FAILED
    assert "not done after" in found["endless"].message
    assert found["noisy"].status == PASSED


def test_what_the_time_did_not_suffice_for_is_named() -> None:
    began = time.monotonic()
    found = run("endless", "noisy", budget=3.0)
    assert time.monotonic() - began < 20
    assert [outcome.status for outcome in found.values()] == [NOT_RUN, NOT_RUN]
    assert as_json(list(found.values()))["not_run"].keys() == {"endless", "noisy"}


def command(*arguments: str, items: tuple[Item, ...] = ITEMS) -> int:
    return main(Script("trial", MODULE, lambda dry: items), "", arguments)


def test_results_are_written_with_where_they_are_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("--dry-run", "--only", "first", "--out", str(tmp_path)) == 0
    (file,) = tmp_path.iterdir()
    report = json.loads(file.read_text())
    assert report["dry"] is True
    assert report["benchmark"] == "trial"
    assert {"date", "commit", "python", "cuda", "gpu", "sources"} <= report.keys()
    assert {"torch", "triton", "transformers"} <= report["versions"].keys()
    assert report["results"]["first"]["gb"] == 3.0
    assert "no figure means anything" in capsys.readouterr().out


def test_a_failure_is_the_exit_code_and_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--dry-run", "--only", "wrong") == 1
    assert "1 failed" in capsys.readouterr().out


@pytest.mark.quick
def test_a_dry_run_writes_nothing_among_the_results() -> None:
    with pytest.raises(SystemExit, match="a dry run writes nothing"):
        command("--dry-run", "--out", str(Path("benchmarks/results")))


@pytest.mark.quick
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert command() == 2
    assert "--dry-run" in capsys.readouterr().out


@pytest.mark.quick
def test_the_share_of_time_that_intervals_cover() -> None:
    assert busy_share([]) is None
    assert busy_share([(5, 6), (0, 2), (1, 3), (9, 10)]) == 0.5
    assert busy_share([(0, 10), (2, 3), (10, 20)]) == 1.0


@pytest.mark.quick
def test_times_are_a_median_and_a_spread() -> None:
    times = Times.of([float(i) for i in range(1, 22)], "graph")
    assert (times.median, times.low, times.high) == (11.0, 3.0, 19.0)


class FakeEvent:
    """Of a device on which a call takes two milliseconds."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = time.monotonic()

    def elapsed_time(self, end: FakeEvent) -> float:
        assert end.at >= self.at
        return 2.0


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """The class that speaks to CUDA, and calls that take what torch's own take."""

    def fake(name: str, **to: Any) -> None:
        made = mock.create_autospec(getattr(torch.cuda, name), **to)
        monkeypatch.setattr(torch.cuda, name, made)

    for name in ("set_device", "synchronize", "empty_cache", "current_stream"):
        fake(name)
    fake("get_device_properties", return_value=SimpleNamespace(L2_cache_size=1 << 20))
    fake("mem_get_info", return_value=(5, 9))
    fake("stream", return_value=nullcontext())
    fake("graph", return_value=nullcontext())
    for name in ("Stream", "CUDAGraph"):
        monkeypatch.setattr(torch.cuda, name, mock.MagicMock())
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    device = Cuda()
    device.torch_device = torch.device("cpu")
    return device


@pytest.mark.quick
def test_a_call_is_timed_by_replays_between_events(cuda: Cuda) -> None:
    calls = []
    times = cuda.times(lambda: calls.append(1), nbytes=1 << 40)
    captured = len(calls) - 3  # compiled, estimated, and once before it is captured
    assert captured > 1
    assert times.median == pytest.approx(2e-3 / captured)
    assert times.how == "graph"
    assert cuda.times(lambda: None, nbytes=1).median == 2e-3, "one call after each emptied cache"
    assert cuda.free_bytes() == 5


@pytest.mark.quick
def test_what_cannot_be_captured_is_timed_without_a_graph(cuda: Cuda) -> None:
    torch.cuda.graph.side_effect = RuntimeError("operation not permitted\nwhen capturing")
    times = cuda.times(lambda: None, nbytes=1 << 40)
    assert times.median == 2e-3
    assert times.how.endswith("cannot be captured: operation not permitted")


@pytest.mark.quick
def test_the_profiler_says_how_busy_the_device_is(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def event(begin: float, end: float, kind: str = "CUDA") -> Any:
        place = getattr(torch.autograd.DeviceType, kind)
        return SimpleNamespace(device_type=place, time_range=SimpleNamespace(start=begin, end=end))

    found = mock.MagicMock()
    events = [event(0, 4), event(2, 6), event(8, 10), event(0, 100, "CPU")]
    found.__enter__.return_value.events.return_value = events
    monkeypatch.setattr(torch.profiler, "profile", mock.Mock(return_value=found))
    assert cuda.busy(lambda: None) == pytest.approx(0.8)


if __name__ == "__main__":
    run_items(ITEMS, Path(sys.argv[2]))
