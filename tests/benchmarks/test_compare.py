"""What `benchmarks/compare.py` says of runs: medians, ratios, the bound, agreement, refusals."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import compare
from benchmarks.agreement import agreement
from benchmarks.ceiling import LinearLayers, Rates, measure
from benchmarks.figures import summarize, table, times_as_fast
from benchmarks.peers.registry import PAGEMILL, PEERS, Peer
from benchmarks.runs import RunFailed, Task, run_once
from benchmarks.workload import Workload

pytestmark = pytest.mark.quick
TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=5)


def write(folder: Path, rows: list[tuple[list[int], int]]) -> Workload:
    path = folder / "w.jsonl"
    lines = [{"ids": ids, "max_tokens": n, "ignore_eos": True} for ids, n in rows]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Workload.read(path)


def figures(seconds: float, tokens: int = 100, **others: float) -> dict:
    return {
        "rows": 4,
        "tokens_per_second": tokens / seconds,
        "generate_seconds": seconds,
        "load_seconds": 1.0,
        "peak_memory_mb": 500,
        **others,
    }


def test_a_workload_counts_common_prefixes_once(tmp_path):
    workload = write(tmp_path, [([1, 2, 3], 5), ([1, 2, 4, 5], 6), ([9], 7), ([1, 2, 3], 1)])
    assert workload.prompt_tokens == 11
    assert workload.unique_prompt_tokens == 6
    assert workload.generated_tokens == 19
    assert workload.first(1).describe() | {"sha256": ""} == {
        "name": "w", "sha256": "", "rows": 1, "prompt_tokens": 3, "unique_prompt_tokens": 3,
        "generated_tokens": 5,
    }  # fmt: skip


@given(st.lists(TOKENS, min_size=1, max_size=8))
def test_unique_tokens_are_the_distinct_beginnings(prompts):
    rows = tuple({"ids": ids, "max_tokens": 1} for ids in prompts)
    beginnings = {tuple(ids[: i + 1]) for ids in prompts for i in range(len(ids))}
    assert Workload(Path(), "", "", rows).unique_prompt_tokens == len(beginnings)


def test_a_line_that_is_no_row_is_refused(tmp_path):
    (tmp_path / "w.jsonl").write_text('{"ids": [1], "max_tokens": 4}\n')
    with pytest.raises(SystemExit, match=r"w\.jsonl, line 1: .*ignore_eos"):
        Workload.read(tmp_path / "w.jsonl")


def test_the_bound_counts_what_has_to_be_multiplied(tmp_path):
    workload = write(tmp_path, [([1, 2, 3], 5), ([1, 2, 4], 5)])
    rates = Rates(100.0, 30.0, 1000.0, 600.0)
    assert rates.bound_seconds(workload) == pytest.approx((4 + 10) * 0.1 + 10 * 0.05)


def test_the_ceiling_is_measured_on_the_models_own_shapes():
    layers = LinearLayers(((48, 32), (32, 32)), num_layers=3, head=(64, 32))
    assert layers.layer_flops == 3 * 2 * 32 * (48 + 32)
    assert layers.head_flops == 2 * 64 * 32
    rates = measure(layers, seconds_a_way=0.01)
    assert rates.layer_flops_per_second > 1e6
    assert rates.head_flops_per_second > 1e6


def test_agreement_lists_where_rows_part():
    reference = [[1, 2, 3], [4, 5, 6], [7, 8], [9]]
    found = agreement(reference, [[1, 2, 3], [4, 0, 6], [7]])
    assert found == {
        "prompts": 3,
        "equal": 1,
        "first_divergences": [
            {"row": 1, "token": 1, "reference": 5, "output": 0},
            {"row": 2, "token": 1, "reference": 8, "output": None},
        ],
    }


def test_a_summary_has_medians_and_the_share_of_each_rounds_ceiling():
    runs = [figures(10.0, prime_seconds=1.0), figures(40.0, prime_seconds=3.0), figures(20.0)]
    summary = summarize(runs, bounds=[5.0, 10.0, 15.0])
    assert summary["generate_seconds"] == 20.0
    assert summary["tokens_per_second"] == 5.0
    assert summary["prime_seconds"] == 2.0
    assert summary["share_of_ceiling"] == 0.5  # of 0.5, 0.25, 0.75
    assert "prime_seconds" not in summarize(runs[2:], [1.0])


def test_the_ratio_is_taken_within_rounds():
    ours = [figures(1.0), figures(10.0), figures(1.0)]
    theirs = [figures(2.0), figures(20.0), figures(3.0)]
    assert times_as_fast(ours, theirs) == 2.0


def test_a_report_compares_each_peer_with_us(tmp_path):
    workload = write(tmp_path, [([1, 2], 2)])
    run = {"outputs": [[5, 6]], "versions": {"x": "1"}}
    runs = {"pagemill": [figures(2.0) | run], "other": [figures(3.0) | run | {"outputs": [[5, 7]]}]}
    report = compare.report_of(runs, [Rates(1.0, 0.0, 4.0, 1.0)], workload, [[5, 6]])
    assert "pagemill_times_as_fast" not in report["pagemill"]
    assert report["other"]["pagemill_times_as_fast"] == 1.5
    assert report["other"]["agreement"]["equal"] == 0
    assert report["pagemill"]["share_of_ceiling"] == 0.5
    text = table(report | {"third": {"failed": "it broke\nbadly"}})
    assert "1.50x" in text
    assert "third                        failed: it broke" in text


def test_a_peer_that_is_not_set_up_is_refused_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("PAGEMILL_PEERS", str(tmp_path))
    with pytest.raises(SystemExit, match="make peer-openvino"):
        compare.chosen("openvino-primed,transformers-generate")
    with pytest.raises(SystemExit, match=r"no peer is called ollama; .* openvino-primed, "):
        compare.chosen("ollama")
    assert {peer.environment for peer in compare.chosen(None)} == {None}
    assert compare.chosen("") == []


def test_a_peer_can_be_taken_to_be_slow(tmp_path, monkeypatch):
    monkeypatch.setenv("PAGEMILL_PEERS", str(tmp_path))
    (tmp_path / "openvino").mkdir()
    (tmp_path / "openvino" / ".ready").touch()
    found = compare.chosen("openvino,openvino-primed", slow="openvino,vllm")
    assert [(peer.name, peer.slow) for peer in found] == [
        ("openvino", True),
        ("openvino-primed", False),
    ]
    with pytest.raises(SystemExit, match="no peer is called ollama"):
        compare.chosen("openvino", slow="ollama")


def test_every_adapter_and_every_command_is_there():
    folder = Path(compare.__file__).parent / "peers"
    recipes = (folder / "peers.mk").read_text()
    for peer in (*PEERS, PAGEMILL):
        assert (folder / peer.script).is_file()
        assert peer.environment is None or f"\npeer-{peer.environment}:" in recipes


def test_an_engine_that_fails_is_told_by_its_last_words(tmp_path, monkeypatch):
    class Broken(Peer):
        def command(self) -> list[str]:
            return [sys.executable, "-c", "raise SystemExit('no such processor')"]

    monkeypatch.setattr(compare, "measure_ceiling", lambda task: Rates(1.0, 1.0, 1.0, 1.0))
    task = Task(tmp_path, tmp_path / "w.jsonl", threads=1, timeout=60)
    with pytest.raises(RunFailed, match="no such processor"):
        run_once(Broken("broken", ""), task)
    runs, rates, failed = compare.alternate([Broken("broken", "")], task, 2, 1)
    assert (runs, len(rates)) == ({}, 2)
    assert "no such processor" in failed["broken"]
