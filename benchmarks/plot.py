"""Draw the newest comparisons as one picture for the README.

    python -m benchmarks.plot [--output docs/peers.svg]

One panel a workload, one bar an engine: how much of the machine's float32 ceiling it reaches
(the whole width), with its tokens/s. Written by hand, so that it stays small, and its
colours follow the reader's light or dark screen.
"""

from __future__ import annotations

import argparse
import json
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.surroundings import RESULTS

LEFT, WIDTH, RIGHT = 210, 380, 170  # pixels: names, the full bar, figures
BAR, GAP = 16, 8  # pixels: height of a bar, and between bars
HEADER, FOOTER = 44, 26
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 } .note { font-size: 11px; fill: #57606a }
.ours { fill: #0969da } .peer { fill: #8c959f } .track { fill: #eaeef2 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .note { fill: #8d96a0 }
  .ours { fill: #4493f8 } .peer { fill: #6e7681 } .track { fill: #21262d }
}
"""


def newest(folder: Path) -> list[dict[str, Any]]:
    """The last comparison of each workload and kind of processor, sorted by their names.

    Raises:
        SystemExit: there is none.
    """
    reports = [json.loads(path.read_text()) for path in sorted(folder.glob("compare-*.json"))]
    reports.sort(key=lambda r: str(r["date"]))
    latest = {(r["workload"]["name"], r["vectors"]): r for r in reports}
    if not latest:
        raise SystemExit(
            f"{folder} has no comparison; `python -m benchmarks.compare WORKLOAD.jsonl --save` "
            "makes one"
        )
    return [latest[key] for key in sorted(latest)]


def draw(reports: list[dict[str, Any]]) -> str:
    """The picture as SVG: a panel for each report, below one another."""
    parts, y = [], 0
    for report in reports:
        panel, height = _panel(report, y)
        parts += panel
        y += height
    width = LEFT + WIDTH + RIGHT
    size = f'width="{width}" height="{y}" viewBox="0 0 {width} {y}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    title = "<title>Tokens per second and share of the float32 ceiling, by engine</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", *parts, "</svg>"]) + "\n"


def _panel(report: dict[str, Any], top: int) -> tuple[list[str], int]:
    """Lines of one panel, and its height in pixels."""
    # A run on a subset only stands beside the slow peers; it is no engine of its own.
    engines = [
        (name, engine)
        for name, engine in report["engines"].items()
        if "failed" not in engine and name != "pagemill-subset"
    ]
    engines.sort(key=lambda item: -item[1]["share_of_ceiling"])
    workload = report["workload"]
    title = f"{workload['name'].replace('_', ' ').replace('-', ' ')}: {workload['rows']} prompts"
    lines = [_text(0, top + 18, title, "title")]
    y = top + HEADER - 16
    for name, engine in engines:
        share = engine["share_of_ceiling"]
        kind = "ours" if name.startswith("pagemill") else "peer"
        subset = "" if engine["rows"] == workload["rows"] else f", {engine['rows']} prompts"
        label = f"{engine['tokens_per_second']:.0f} tokens/s{subset}"
        lines += [
            _text(0, y + 13, name),
            _bar(WIDTH, y, "track"),
            _bar(round(WIDTH * min(share, 1.0), 1), y, kind),
            _text(LEFT + WIDTH + 8, y + 13, label, "note"),
        ]
        y += BAR + GAP
    note = (
        f"full width: the float32 ceiling of {report['processor']}, {report['vectors']}, "
        f"{report['threads']} threads, {report['date'][:10]}"
    )
    lines.append(_text(LEFT, y + 8, note, "note"))
    return lines, y + FOOTER - top


def _bar(width: float, y: int, kind: str) -> str:
    return f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{width}" height="{BAR}" rx="2"/>'


def _text(x: int, y: int, words: str, kind: str = "name") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(words)}</text>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=RESULTS.parents[1] / "docs" / "peers.svg")
    options = parser.parse_args()
    options.output.write_text(draw(newest(RESULTS)))
    print(options.output)


if __name__ == "__main__":
    main()
