"""Processes that are asked one thing: what they tell, how they end, and that they end with us."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from jobs import children
from jobs.children import events_of
from jobs.errors import ChildFailed, HubUnavailable, JobsError, ModelUnusable, StorageError
from tests.support.child import child

TELL = """
import json, sys
request = json.loads(sys.stdin.readline())
def tell(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)
"""


def command(code: str) -> list[str]:
    return [sys.executable, "-c", f"{TELL}\n{code}"]


def test_what_is_told_comes_in_its_order_and_answers_the_request() -> None:
    code = "tell('a', got=request['x']); tell('b')"
    assert list(events_of(command(code), {"x": [1, "é"]})) == [("a", {"got": [1, "é"]}), ("b", {})]


@pytest.mark.parametrize(
    ("kind", "error", "status"),
    [("model", ModelUnusable, 3), ("hub", HubUnavailable, 69), ("storage", StorageError, 74),
     ("", JobsError, 1)],
)  # fmt: skip
def test_its_errors_become_ours(kind: str, error: type[JobsError], status: int) -> None:
    code = f"tell('error', kind={kind!r}, message='the disk of x is full')"
    with pytest.raises(error, match="the disk of x is full") as raised:
        list(events_of(command(code), {}))
    assert raised.value.exit_code == status


def test_a_death_without_a_word_is_told_with_the_last_ones_and_no_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    code = "sys.exit('no module named y, says hf_verysecret')"
    with pytest.raises(ChildFailed, match=r"ended with 1: .*named y, says \*\*\*"):
        list(events_of(command(code), {}))
    with pytest.raises(ChildFailed, match="killed by signal 9: it said nothing"):
        list(events_of(command("import os; os.kill(os.getpid(), 9)"), {}))


def test_one_that_cannot_even_begin(tmp_path: Path) -> None:
    with pytest.raises(ChildFailed, match="No module named"):
        list(events_of([sys.executable, "-m", "no_such_module"], {"x": "y" * 200_000}))


@pytest.mark.parametrize("stubborn", [False, True])
def test_it_ends_when_nobody_listens_any_more(
    monkeypatch: pytest.MonkeyPatch, stubborn: bool
) -> None:
    monkeypatch.setattr(children, "CLOSING_SECONDS", 0.1 if stubborn else 30)
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" if stubborn else ""
    code = f"{ignore}\nimport os, time; tell('pid', pid=os.getpid()); time.sleep(600)"
    with contextlib.closing(events_of(command(code), {})) as events:
        _, told = next(events)
        process = psutil.Process(told["pid"])
    assert not process.is_running()


def test_it_ends_with_us_however_we_end() -> None:
    """Also where nobody could end it: its stdin does."""
    far = (
        "import os, time\n"
        "from worker.telling import answer\n"
        "answer(lambda request, tell: (tell('pid', pid=os.getpid()), time.sleep(600)))"
    )
    near = (
        "import sys\n"
        "from jobs.children import events_of\n"
        f"for _, told in events_of([sys.executable, '-c', {far!r}], {{}}):\n"
        "    print(told['pid'], flush=True)"
    )
    with child([sys.executable, "-c", near], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        inner = psutil.Process(int(process.stdout.readline()))
        os.kill(process.pid, signal.SIGKILL)
    inner.wait(60)


def test_what_a_library_prints_does_not_come_between() -> None:
    code = (
        "from worker.telling import Refused, answer\n"
        "def work(request, tell):\n"
        "    print('hello from a library')\n"
        "    tell('a')\n"
        "    raise Refused('hub', 'the secret is out')\n"
        "answer(work, lambda text: text.replace('secret', '***'))"
    )
    events = events_of([sys.executable, "-c", code], {})
    assert next(events) == ("a", {})
    with pytest.raises(HubUnavailable, match=r"the \*\*\* is out"):
        next(events)
