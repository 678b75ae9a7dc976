"""Write docs/tour.md anew: every command with what it really printed, on the small real model.

    python -m docs.tour

It takes some minutes and works in a home of its own. Long outputs are cut in the middle; where the
home lies, and what the machine is called, is written in another way.
"""

from __future__ import annotations

import getpass
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from docs.tour_steps import STEPS, Step

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tour.md"
MOST_LINES = 20  # of an output
WIDTH = 130  # columns of the terminal that the commands think of
HOME, HOST = "/home/ada/pagemill", "host"
PAGEMILL = (sys.executable, "-P", "-m", "jobs")

_HEAD = """# Every command, and what it prints

All of this was printed by the commands themselves, one after another, with SmolLM2-135M on two
cores (`python -m docs.tour` writes this page anew); what goes to stderr and what goes to stdout
stand in one block here, and long lines and outputs are cut. [The command line](cli.md) says what
the commands do, and [commands](reference/commands.md) has every option.
"""


@dataclass
class Session:
    """A shell in a folder of its own.

    Attributes:
        names: what later commands call by a name in braces.
    """

    folder: Path
    names: dict[str, str] = field(default_factory=dict)
    background: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "examples").symlink_to(ROOT / "examples")
        ours = {"PAGEMILL_HOME": str(self.folder / "home"), "COLUMNS": str(WIDTH)}
        others = {k: v for k, v in os.environ.items() if not k.startswith("PAGEMILL_")}
        self.env = others | ours | {"PYTHONPATH": str(ROOT)}

    def run(self, step: Step) -> str:
        """What a step printed, as its block shows it."""
        command = step.command.format(**self.names)
        print(command, file=sys.stderr)
        words = [*PAGEMILL, *shlex.split(command)[1:]]
        process = subprocess.Popen(
            words, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if step.background else subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        if step.background:
            self.background.append(process)
            return f"$ {command}"
        printed = self._printed(process, step.seconds)
        if process.returncode not in step.ends:
            raise SystemExit(f"{command} ended with {process.returncode}:\n{printed}")
        if step.name:
            (self.names[step.name],) = re.findall(step.pattern, printed)[:1]
        ended = f"\n(ended with {process.returncode})" if process.returncode else ""
        return f"$ {command}\n{self.shown(printed)}{ended}"

    def _printed(self, process: subprocess.Popen[str], seconds: int) -> str:
        """All that it prints until it ends, or is told to leave after some seconds."""
        try:
            return process.communicate(timeout=seconds or None)[0]
        except subprocess.TimeoutExpired:
            process.terminate()
            return process.communicate()[0]

    def shown(self, printed: str) -> str:
        lines = [self._elsewhere(line.rstrip()) for line in printed.rstrip().splitlines()]
        if len(lines) > MOST_LINES:
            head = MOST_LINES * 2 // 3
            lines = [*lines[:head], "…", *lines[head - MOST_LINES + 1 :]]
        return "\n".join(line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…" for line in lines)

    def _elsewhere(self, line: str) -> str:
        """The line as somebody else would have it, whose name is Ada."""
        for ours in (str(self.folder / "home"), str(self.folder), str(ROOT)):
            line = line.replace(ours, HOME)
        line = re.sub(r"/\S+(?=/site-packages/)", f"{HOME}/.venv/lib/python", line)
        line = line.replace(sys.prefix, f"{HOME}/.venv").replace(str(Path.home()), "/home/ada")
        line = line.replace(f"{getpass.getuser()}@", "ada@")
        return re.sub(rf"\b{re.escape(socket.gethostname())}\b", HOST, line)

    def close(self) -> None:
        for process in self.background:
            process.terminate()
            process.wait()


def main() -> None:
    sections = [_HEAD]
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder))
        for name, content in STEPS.files.items():
            (session.folder / name).write_text(content)
        try:
            for title, words, steps in STEPS.sections:
                blocks = [session.run(step) for step in steps]
                shown = "\n\n".join(f"```console\n{block}\n```" for block in blocks)
                sections.append(f"## {title}\n\n{words}\n\n{shown}\n")
        finally:
            session.close()
    PAGE.write_text("\n".join(sections))


if __name__ == "__main__":
    main()
