"""Take the pictures of the README anew, of real runs of a real small model.

    python -m docs.screenshots [report] [watch]

`report` runs the evaluation of examples/evals four times and takes a picture of its report, which
needs Chromium. `watch` answers examples/support_tickets.jsonl and keeps what `status --watch`
draws meanwhile on a terminal. Both take some minutes and write to docs/images.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.support.chromium import chromium, installed

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
EVALS = "examples/evals"
MODEL = "smollm2-135m"
MOST_BYTES = 300_000
COLUMNS = 76
SHOWN_SHARE = 60  # percent of the rows that are answered in the picture of a job

PAGEMILL = (sys.executable, "-P", "-m", "jobs")
# How Live of rich takes back what it drew before.
_TAKEN_BACK = re.compile(rb"(?:\r|\x1b\[\d*[AK]|\x1b\[\?25[lh])+")


def report(home: Path) -> None:
    """Four runs: a baseline, the same again, warmer, and much warmer."""
    program = installed()
    if program is None:
        raise SystemExit("the picture of a report needs chromium, which is not installed")
    run = (
        "eval",
        "run",
        "--spec",
        f"{EVALS}/demo.json",
        "--scorer",
        "normalized",
        "--scorer",
        "f1",
    )
    few = ("--template", f"{EVALS}/few-shot.jinja")
    gate = ("--gate", "normalized:drop<=0.02,p<0.05", "--gate", "f1>=0.3")
    _pagemill(home, *run, *few)
    (first,) = re.findall(r"eval_[a-z0-9]{20}", _pagemill(home, "eval", "list", "--json"))[:1]
    _pagemill(home, "eval", "bless", first)
    _pagemill(home, *run, *few, *gate)
    _pagemill(home, *run, *few, *gate, "--temperature", "0.3", may_end=(0, 10))
    _pagemill(home, *run, *few, *gate, "--temperature", "1", may_end=(0, 10))
    page = home / "report.html"
    _pagemill(home, "report", "questions", "-o", str(page))
    with chromium(program, home / "profile") as browser:
        browser.open(page, 1180, height=1170)
        _write("report.png", browser.screenshot())


def watch(home: Path) -> None:
    """A frame of the panel that follows a job."""
    _pagemill(home, "db", "upgrade")
    tickets = ("examples/support_tickets.jsonl", "--model", MODEL, "--chunk-rows", "16")
    job = _pagemill(home, "submit", *tickets, "--name", "tickets").strip()
    worker = subprocess.Popen(
        [*PAGEMILL, "worker", "--model", MODEL, "--exit-when-done", job],
        cwd=ROOT, env=_environment(home), stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        frames = _frames(home, "status", job, "--watch")
    finally:
        worker.terminate()
        worker.wait()
    shares = {int(found[1]): frame for frame in frames if (found := re.search(r"(\d+)%", frame))}
    if not shares:
        raise SystemExit(f"no frame says how far the job is; the last one is\n{frames[-1:]}")
    frame = shares[min(shares, key=lambda share: abs(share - SHOWN_SHARE))]
    _write("watch.svg", as_svg(frame).encode())


def _pagemill(home: Path, *arguments: str, may_end: tuple[int, ...] = (0,)) -> str:
    print("pagemill", *arguments, file=sys.stderr)
    done = subprocess.run(
        [*PAGEMILL, *arguments], cwd=ROOT, env=_environment(home), stdout=subprocess.PIPE, text=True
    )
    if done.returncode not in may_end:
        raise SystemExit(f"pagemill {' '.join(arguments)} ended with {done.returncode}")
    return done.stdout


def _environment(home: Path) -> dict[str, str]:
    ours = {"PAGEMILL_HOME": str(home), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    return {k: v for k, v in os.environ.items() if not k.startswith("PAGEMILL_")} | ours


def _frames(home: Path, *arguments: str) -> list[str]:
    """What a command draws on a terminal, each time anew."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [*PAGEMILL, *arguments], cwd=ROOT, env=_environment(home),
        stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    written = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # how Linux tells that nobody holds the other end
            break
        if not data:
            break
        written += data
    process.wait()
    os.close(ours)
    return frames_in(written)


def frames_in(written: bytes) -> list[str]:
    """The frames that somebody saw at a terminal to which that was written."""
    # A line break is not what takes a frame back.
    parts = _TAKEN_BACK.split(written.replace(b"\r\n", b"\n"))
    return [part.decode(errors="replace") for part in parts]


def as_svg(frame: str) -> str:
    """A terminal with a frame in it; without the fonts that rich's own picture would fetch."""
    lines = frame.strip("\n").count("\n") + 1
    shown = Console(record=True, width=COLUMNS, height=lines, file=io.StringIO())
    shown.print(Text.from_ansi(frame.strip("\n")), no_wrap=True, overflow="crop")
    svg = shown.export_svg(title="pagemill status --watch")
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code", "ui-monospace, DejaVu Sans Mono")


def _write(name: str, content: bytes) -> None:
    if len(content) > MOST_BYTES:
        raise SystemExit(f"{name} has {len(content):,} bytes; a picture may have {MOST_BYTES:,}")
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / name).write_bytes(content)
    print(f"docs/images/{name}: {len(content):,} bytes", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pictures", nargs="*", help="report, watch; both if none is named")
    wanted = parser.parse_args().pictures or ["report", "watch"]
    takers = {"report": report, "watch": watch}
    for name in wanted:
        if name not in takers:
            parser.error(f"there is no picture {name!r}; there are report and watch")
        with tempfile.TemporaryDirectory() as home:
            takers[name](Path(home))


if __name__ == "__main__":
    main()
