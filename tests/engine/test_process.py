"""A real engine process: what it reports when, and what it logs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from engine.grammar.spec import GrammarKind, GrammarSpec
from engine.messages import (
    AbortRequests,
    AddRequests,
    BatchChanged,
    Crashed,
    EngineStats,
    Loading,
    Located,
    Message,
    Ready,
    Refused,
    Report,
    Start,
    decode,
    encode,
)
from engine.request import FinishReason, Request, RequestOutput
from engine.sampling_params import SamplingParams
from tests.support.tiny_model import build_tiny_model

PATIENCE = 120.0
PROMPT = tuple(b"A prompt of two blocks and a bit, sixteen tokens each")


class Process:
    """An engine at the far end of two pipes, its standard error in a file."""

    def __init__(self, log: Path, program: Sequence[str] = ("-m", "engine"), **env: str) -> None:
        engine_in, self_out = os.pipe()
        self_in, engine_out = os.pipe()
        self.log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-P", *program, str(engine_in), str(engine_out)],
                pass_fds=(engine_in, engine_out), stderr=stderr, env={**os.environ, **env},
            )  # fmt: skip
        os.close(engine_in)
        os.close(engine_out)
        self.reader = Connection(self_in, writable=False)
        self.writer = Connection(self_out, readable=False)
        self.batches: list[BatchChanged] = []  # those that came so far
        self.steps: list[str] = []

    def send(self, message: Message) -> None:
        self.writer.send_bytes(encode(message))

    def receive(self) -> Message:
        """The next message but for changes of the batch and steps of the start: kept aside."""
        while True:
            assert self.reader.poll(PATIENCE), self.log.read_text()
            message = decode(self.reader.recv_bytes())
            match message:
                case BatchChanged():
                    self.batches.append(message)
                case Loading():
                    self.steps.append(message.step)
                case _:
                    return message

    def reports(self, until: Callable[[Report], bool]) -> list[Report]:
        """Reports up to the first that satisfies `until`."""
        found: list[Report] = []
        while not (found and until(found[-1])):
            message = self.receive()
            assert isinstance(message, Report)
            found.append(message)
        return found

    def close(self) -> int:
        """What the worker's end does to the engine: the pipe closes. Returns its exit status."""
        self.writer.close()
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()
            self.reader.close()


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    folder = build_tiny_model(tmp_path_factory.mktemp("tiny"))
    settings = {"num_blocks": 200, "max_num_seqs": 4, "threads": 1, "swap_space": 1 / 8}
    return Start({"model": str(folder), **settings})


@pytest.fixture
def launch(start: Start, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts an engine with variables of its environment, and tells it to load the model."""
    made: list[Process] = []

    def launched(**env: str) -> Process:
        made.append(Process(tmp_path / f"log{len(made)}", **env))
        made[-1].send(start)
        return made[-1]

    yield launched
    for process in made:
        process.close()


@pytest.fixture
def engine(launch: Callable[..., Process]) -> Process:
    made = launch()
    located, ready = made.receive(), made.receive()
    assert isinstance(ready, Ready)
    assert located == Located(ready.model_path)
    return made


def test_the_start_tells_what_it_is_at(engine: Process) -> None:
    steps = [step for step in engine.steps if not re.search(r"[1-9]\d*%", step)]
    assert steps == [
        "loading torch", "loading weights 0%", "packing weights", "sizing the KV cache",
    ]  # fmt: skip


def added(count: int, max_tokens: int, **params: Any) -> AddRequests:
    rules = SamplingParams(max_tokens, ignore_eos=True, **params)
    return AddRequests(tuple(Request(f"r{i}", PROMPT[i % 5 :], rules) for i in range(count)))


def is_idle(report: Report) -> bool:
    return report.stats is not None and report.stats.running + report.stats.waiting == 0


def test_stats_come_first_while_busy_and_when_it_falls_idle(engine: Process) -> None:
    (first,) = engine.reports(is_idle)
    # A block takes 4 KiB.
    totals = {"blocks_total": 200, "swap_blocks_total": 2**27 // 2**12}
    assert first == Report(stats=EngineStats(**totals, step_buckets=(0,) * 13))
    engine.send(added(12, 150))
    found = engine.reports(is_idle)
    outputs = [o for report in found for o in report.outputs]
    assert sorted(o.request_id for o in outputs) == sorted(f"r{i}" for i in range(12))
    with_stats = [r for r in found if r.stats is not None]
    assert all((r.running is None) == (r.stats is None) for r in found)
    stats = [r.stats for r in with_stats if r.stats is not None]
    assert (stats[0].running, stats[0].waiting) == (4, 8)
    assert stats[0].blocks_used > 0
    assert set(with_stats[0].running or ()) == {"r0", "r1", "r2", "r3"}
    assert with_stats[-1].running == {}
    assert stats[-1].blocks_used == 0
    assert stats[-1].generated_tokens == 12 * 150
    assert stats[-1].steps == sum(stats[-1].step_buckets)
    assert [s.steps for s in stats] == sorted(s.steps for s in stats)
    assert len(stats) <= 3 + stats[-1].step_seconds / 0.4, "more than about two a second"
    assert not engine.reader.poll(0.8), "an idle engine has nothing to say"


def test_work_of_a_single_step_is_in_the_stats(engine: Process) -> None:
    engine.reports(is_idle)
    for total in (1, 2):
        engine.send(added(1, 1))
        (report,) = engine.reports(is_idle)
        assert len(report.outputs) == 1
        assert report.stats is not None
        assert report.stats.generated_tokens == total


def test_an_engine_whose_requests_are_all_aborted_falls_idle(engine: Process) -> None:
    engine.reports(is_idle)
    engine.send(added(3, 950))
    engine.reports(lambda r: r.stats is not None and r.stats.running == 3)
    engine.send(AbortRequests(("r0", "r1", "r2")))
    last = engine.reports(is_idle)[-1]
    assert last.stats is not None
    assert (last.running, last.stats.blocks_used) == ({}, 0)
    engine.send(AbortRequests(("r0",)))  # nothing changes, nothing is said
    assert not engine.reader.poll(0.3)


def test_a_refused_request_is_answered_at_once(engine: Process) -> None:
    engine.reports(is_idle)
    engine.send(AddRequests((Request("empty", ()),)))
    (report,) = engine.reports(lambda r: bool(r.outputs))
    assert report.outputs[0].finish_reason is FinishReason.ERROR
    assert report.outputs[0].error_code == "empty_prompt"
    assert (report.running, report.stats) == (None, None)


def test_a_request_whose_rules_cannot_be_is_answered_beside_a_grammar(engine: Process) -> None:
    grammar = GrammarSpec(GrammarKind.REGEX, "[ab]{3}")
    bad = SamplingParams(3, logit_bias=((1 << 20, 1.0),), grammar=grammar)
    good = SamplingParams(3, grammar=grammar)
    engine.reports(is_idle)
    engine.send(AddRequests((Request("bad", PROMPT, bad), Request("good", PROMPT, good))))
    found = {o.request_id: o for report in engine.reports(is_idle) for o in report.outputs}
    assert (found["bad"].error_code, found["bad"].error_field) == (
        "invalid_parameter",
        "logit_bias",
    )
    assert re.fullmatch("[ab]{3}", found["good"].text)


def test_samples_and_log_probabilities_come_through_the_pipe(engine: Process) -> None:
    engine.reports(is_idle)
    rules = SamplingParams(8, temperature=1.0, seed=3, ignore_eos=True, logprobs=2)
    engine.send(
        AddRequests(tuple(Request(f"r{i}", PROMPT, rules, sample_index=i) for i in range(4)))
    )
    found: dict[str, RequestOutput] = {
        o.request_id: o for r in engine.reports(is_idle) for o in r.outputs
    }
    assert len({o.token_ids for o in found.values()}) == 4
    for output in found.values():
        assert output.logprobs is not None
        assert [t.token_id for t in output.logprobs] == list(output.token_ids)
        assert all(len(t.top) == 2 for t in output.logprobs)


def test_the_batch_is_told_before_its_step(engine: Process) -> None:
    engine.reports(is_idle)
    engine.send(added(6, 3))
    engine.reports(is_idle)
    engine.send(AddRequests((Request("last", PROMPT),)))
    engine.reports(is_idle)
    first, second, third = engine.batches
    assert first == BatchChanged(("r0", "r1", "r2", "r3"))
    assert second == BatchChanged(("r4", "r5"), ("r0", "r1", "r2", "r3"))
    assert third == BatchChanged(("last",), ("r4", "r5"))


def json_log(process: Process) -> list[dict[str, Any]]:
    """Every line that the process wrote must be an object of its own."""
    records = [json.loads(line) for line in process.log.read_text().splitlines()]
    for record in records:
        assert (record["process"], record["pid"]) == ("engine", process.process.pid)
    return records


def test_the_log_as_json(start: Start, launch: Callable[..., Process]) -> None:
    process = launch(PAGEMILL_LOG_FORMAT="json", PYTHONWARNINGS="default")
    assert isinstance(process.receive(), Located)
    assert isinstance(process.receive(), Ready)
    process.send(start)  # not now: a bug of whoever sends it
    process.reports(is_idle)
    crashed = process.receive()
    assert isinstance(crashed, Crashed)
    assert process.process.wait(PATIENCE) == 1
    loaded, pool, swap, end = json_log(process)
    assert loaded["message"].startswith("model loaded: ")
    assert (loaded["dtype"], loaded["device"]) == ("float32", "cpu")
    assert loaded["model"] == start.config["model"]
    assert pool["message"].startswith("KV cache: 200 blocks, 3,200 tokens")
    assert (pool["num_blocks"], pool["tokens"]) == (200, 3200)
    assert swap["message"].startswith("swap space: up to 32,768 blocks, 0.12 GiB")
    assert end["level"] == "ERROR"
    assert end["exception"].endswith("ValueError: unexpected message Start")


def test_what_is_no_message_ends_the_engine_in_words(engine: Process) -> None:
    engine.reports(is_idle)
    engine.writer.send_bytes(b'{"type":"AbortRequests"}')
    crashed = engine.receive()
    assert isinstance(crashed, Crashed)
    assert "not a message of the engine's pipe" in crashed.message
    engine.writer.close()  # as the worker does as soon as it sees the end
    assert engine.process.wait(PATIENCE) == 1


BROKEN = """
import sys
from engine import core, process
from engine.errors import EngineError

def step(*arguments):
    raise EngineError("a bug of the scheduler's")

core.Engine.step = step
sys.exit(process.main(int(sys.argv[1]), int(sys.argv[2])))
"""


def test_an_error_of_an_engine_that_was_ready_is_no_refusal(start: Start, tmp_path: Path) -> None:
    """It would seem to be the model's fault, and its traceback would be nowhere."""
    process = Process(tmp_path / "log", ("-c", BROKEN))
    try:
        process.send(start)
        assert isinstance(process.receive(), Located)
        assert isinstance(process.receive(), Ready)
        process.reports(is_idle)
        process.send(added(1, 1))
        assert process.receive() == Crashed("EngineError: a bug of the scheduler's")
    finally:
        assert process.close() == 1
    assert "in step" in process.log.read_text()


def test_the_first_token_is_told_once(launch: Callable[..., Process]) -> None:
    process = launch(PAGEMILL_LOG_FORMAT="json")
    assert isinstance(process.receive(), Located)
    assert isinstance(process.receive(), Ready)
    process.reports(is_idle)
    for _ in range(2):
        process.send(added(2, 3))
        process.reports(is_idle)
    loaded, _, _, first = json_log(process)
    assert first["event"] == "first_token"
    assert loaded["seconds"] < first["seconds"] < PATIENCE


def test_the_log_as_text(engine: Process) -> None:
    assert engine.close() == 0
    lines = engine.log.read_text().splitlines()
    assert len(lines) == 3
    assert all(re.match(r"\d{4}-\S+ \S+ INFO pagemill\.engine [mKs]", line) for line in lines)


def test_the_level_of_the_log(launch: Callable[..., Process]) -> None:
    process = launch(PAGEMILL_LOG_LEVEL="warning")
    assert isinstance(process.receive(), Located)
    assert isinstance(process.receive(), Ready)
    assert process.log.read_text() == ""


def test_an_unknown_log_format_is_refused(launch: Callable[..., Process]) -> None:
    process = launch(PAGEMILL_LOG_FORMAT="xml")
    refused = process.receive()
    assert isinstance(refused, Refused)
    assert "PAGEMILL_LOG_FORMAT" in refused.message
    assert process.process.wait(PATIENCE) == 3
