"""The picture is drawn from the recorded results, and shows what they say."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.plot import LEFT, WIDTH, draw, newest

pytestmark = pytest.mark.quick


def result(name: str, date: str, engines: dict[str, dict], vectors: str = "avx2") -> dict:
    return {
        "date": f"{date}T10:00:00+00:00",
        "processor": "A <processor> & more",
        "vectors": vectors,
        "threads": 2,
        "workload": {"name": name, "rows": 64},
        "engines": engines,
    }


def engine(share: float, speed: float, rows: int = 64) -> dict:
    return {"share_of_ceiling": share, "tokens_per_second": speed, "rows": rows}


def keep(folder: Path, report: dict) -> None:
    kind = f"{report['workload']['name']}-{report['vectors']}"
    path = folder / f"compare-{kind}-{report['date'][:10]}.json"
    path.write_text(json.dumps(report))


def test_bars_are_shares_of_the_ceiling_best_first():
    engines = {
        "slow": engine(0.05, 31.2, rows=8),
        "pagemill": engine(0.8, 500.4),
        "pagemill-subset": engine(0.7, 300.0, rows=8),
        "broken": {"failed": "no module"},
        "faster-than-possible": engine(1.2, 700.0),
    }
    root = ElementTree.fromstring(draw([result("few_shot", "2026-11-30", engines)]))
    svg = "{http://www.w3.org/2000/svg}"
    bars = [r for r in root.iter(f"{svg}rect") if r.get("class") != "track"]
    assert [r.get("class") for r in bars] == ["peer", "ours", "peer"]
    assert [float(r.get("width", 0)) for r in bars] == [WIDTH, 0.8 * WIDTH, 0.05 * WIDTH]
    assert {r.get("x") for r in bars} == {str(LEFT)}
    texts = [t.text for t in root.iter(f"{svg}text")]
    assert texts[0] == "few shot: 64 prompts"
    assert texts[1:-1] == [
        "faster-than-possible", "700 tokens/s",
        "pagemill", "500 tokens/s",
        "slow", "31 tokens/s, 8 prompts",
    ]  # fmt: skip
    assert "A <processor> & more, avx2, 2 threads, 2026-11-30" in (texts[-1] or "")


def test_panels_are_the_newest_of_each_workload_and_do_not_overlap(tmp_path):
    for name, date, vectors, speed in (
        ("b", "2026-01-02", "avx2", 2),
        ("a", "2026-01-03", "avx2", 3),
        ("a", "2026-01-01", "avx2", 1),
        ("a", "2026-01-01", "avx512", 4),
    ):
        keep(tmp_path, result(name, date, {"pagemill": engine(0.5, speed)}, vectors))
    reports = newest(tmp_path)
    assert [r["engines"]["pagemill"]["tokens_per_second"] for r in reports] == [3, 4, 2]
    root = ElementTree.fromstring(draw(reports))
    tops = [float(t.get("y", 0)) for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert tops == sorted(tops)
    assert tops[-1] < float(root.get("height", 0))


def test_without_results_it_says_how_to_get_them(tmp_path):
    with pytest.raises(SystemExit, match=r"benchmarks\.compare WORKLOAD\.jsonl --save"):
        newest(tmp_path)
