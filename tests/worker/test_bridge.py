"""The bridge to a real engine process, which is killed now and then."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

import psutil
import pytest

from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from tests.support.deployment import wait_for
from tests.support.tiny_model import build_tiny_model
from worker import bridge as bridge_module
from worker.bridge import EngineBridge
from worker.engine_process import EngineProcess
from worker.errors import EngineLost, ModelUnavailable


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = build_tiny_model(tmp_path_factory.mktemp("tiny"))
    return {"model": str(folder), "num_blocks": 256, "max_num_seqs": 4, "threads": 1,
            "check_invariants": True}  # fmt: skip


@pytest.fixture
def bridge(config):
    failures = []
    made = EngineBridge(config, failures.append)
    made.start()
    yield made
    made.close()
    assert failures == []


@pytest.fixture(autouse=True)
def _no_bridge_outlives_its_test(monkeypatch):
    """Its engine would be taken for that of the next one."""
    made, start = [], EngineBridge.start

    def started(self, *arguments):
        made.append(self)
        return start(self, *arguments)

    monkeypatch.setattr(EngineBridge, "start", started)
    yield
    for bridge in made:
        bridge.close()


class Answers:
    """A sink that counts."""

    def __init__(self, expected):
        self.found = {}
        self._expected = expected
        self._complete = threading.Event()

    def __call__(self, output):
        assert output.request_id not in self.found, "answered twice"
        self.found[output.request_id] = output
        if len(self.found) == self._expected:
            self._complete.set()

    def wait(self):
        assert self._complete.wait(120), f"{len(self.found)} of {self._expected} answers"
        return self.found


def requests(count, max_tokens=16, prefix=""):
    return [
        Request(
            f"{prefix}{i}", tuple(b"prompt %d" % i), SamplingParams(max_tokens, ignore_eos=True)
        )
        for i in range(count)
    ]


def engine_of_this_process():
    return next(c for c in psutil.Process().children() if "engine" in c.cmdline())


def test_every_request_is_answered_to_its_own_sink(bridge):
    one, other = Answers(5), Answers(7)
    bridge.submit(requests(5, prefix="a"), one)
    bridge.submit(requests(7, prefix="b"), other)
    assert {i[0] for i in one.wait()} == {"a"}
    assert {i[0] for i in other.wait()} == {"b"}
    assert all(o.completion_tokens == 16 for o in one.found.values())


def test_a_refused_request_is_an_answer(bridge):
    sink = Answers(2)
    bridge.submit([Request("long", (1,) * 5000), *requests(1)], sink)
    found = sink.wait()
    assert found["long"].finish_reason is FinishReason.ERROR
    assert found["long"].error_code == "prompt_too_long"
    assert "5000" in found["long"].error_message
    assert found["0"].finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("token_ids", "code"),
    [((), "empty_prompt"), ((1,) * 5000, "prompt_too_long"), ((1, 999_999), "unknown_token")],
)
def test_tokens_of_a_prompt_that_is_not_computed_do_not_count(bridge, token_ids, code):
    sink = Answers(1)
    bridge.submit([Request("r", token_ids)], sink)
    answer = sink.wait()["r"]
    assert answer.error_code == code
    assert (answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens) == (0, 0, 0)


def test_a_killed_engine_costs_no_answer_and_changes_none(bridge):
    calm = Answers(40)
    bridge.submit(requests(40, 200, "calm"), calm)
    calm.wait()
    stormy = Answers(40)
    bridge.submit(requests(40, 200, "storm"), stormy)
    wait_for("rows to run", bridge.running)
    engine_of_this_process().kill()
    found = stormy.wait()
    for i in range(40):
        assert found[f"storm{i}"].token_ids == calm.found[f"calm{i}"].token_ids


def test_abort_is_silent_at_once(bridge):
    sink = Answers(1)
    bridge.submit(requests(20, 200), sink)
    wait_for("rows to run", bridge.running)
    bridge.abort([str(i) for i in range(20)])
    answered = set(sink.found)
    after = Answers(20)
    bridge.submit(requests(20, 4, "later"), after)
    after.wait()
    assert set(sink.found) == answered


def test_running_rows_report_their_tokens(bridge):
    sink = Answers(4)
    bridge.submit(requests(4, 2000), sink)
    counts = wait_for("a report", lambda: bridge.running().get("0"))
    assert counts.prompt == len(b"prompt 0")
    assert counts.completion > 0
    bridge.abort([str(i) for i in range(4)])


def test_the_engine_ignores_the_terminals_signals(bridge):
    engine = engine_of_this_process()
    engine.send_signal(signal.SIGINT)
    engine.send_signal(signal.SIGTERM)
    engine.send_signal(signal.SIGHUP)
    sink = Answers(3)
    bridge.submit(requests(3), sink)
    sink.wait()
    assert engine.is_running()


def test_a_model_that_cannot_be_served_is_refused_with_its_reason(tmp_path):
    bridge = EngineBridge({"model": str(tmp_path / "nothing")}, lambda error: None)
    with pytest.raises(ModelUnavailable, match="nothing"):
        bridge.start()
    bridge.close()


def test_the_folder_is_known_before_the_weights_are_loaded(config):
    bridge = EngineBridge(config, lambda error: None)
    told = []
    ready = bridge.start(lambda folder: told.append((folder, bridge._engine)))
    assert told == [(ready.model_path, None)]
    bridge.close()


def test_a_start_that_the_caller_ends_leaves_no_engine(config):
    bridge = EngineBridge(config, lambda error: None)

    def refuse(folder):
        raise ModelUnavailable("its tokenizer is broken")

    with pytest.raises(ModelUnavailable, match="tokenizer is broken"):
        bridge.start(refuse)
    assert [c for c in psutil.Process().children() if "engine" in c.cmdline()] == []
    bridge.close()


def test_an_engine_that_runs_already_is_the_first(config):
    engine = EngineProcess(config)
    bridge = EngineBridge(config, lambda error: None, started=engine)
    bridge.start()
    assert engine_of_this_process().pid == engine.pid
    engine_of_this_process().kill()
    sink = Answers(1)
    bridge.submit(requests(1), sink)
    sink.wait()
    assert engine_of_this_process().pid != engine.pid
    bridge.close()


def test_an_engine_that_dies_again_and_again_is_given_up(config, monkeypatch):
    monkeypatch.setattr(bridge_module, "MAX_FRUITLESS_DEATHS", 1)
    failures = []
    failed = threading.Event()
    bridge = EngineBridge(config, lambda error: (failures.append(error), failed.set()))
    bridge.start()
    engine = engine_of_this_process()
    monkeypatch.setattr(EngineProcess, "receive", kill_on_receive(EngineProcess.receive))
    bridge.submit(requests(1, 2000), lambda output: None)
    with contextlib.suppress(psutil.NoSuchProcess):  # its next report may have ended it already
        engine.kill()
    assert failed.wait(120)
    bridge.close()
    assert isinstance(failures[0], EngineLost)
    assert "in a row" in str(failures[0])


def kill_on_receive(receive):
    """Every engine dies before its first word."""

    def killing(self):
        os.kill(self.pid, signal.SIGKILL)
        return receive(self)

    return killing


def test_an_engine_that_hangs_is_killed_and_its_rows_are_answered(config, caplog):
    """A stopped process stands for one that is stuck in a driver: it is alive and says nothing."""
    failures = []
    bridge = EngineBridge(config, failures.append, engine_timeout=3.0)
    bridge.start()
    sink = Answers(8)
    bridge.submit(requests(8, 400), sink)
    wait_for("rows to run", bridge.running)
    hung = engine_of_this_process()
    hung.suspend()
    found = sink.wait()
    assert all(o.completion_tokens == 400 for o in found.values())
    assert f"engine {hung.pid} has said nothing for" in caplog.text
    assert f"engine {hung.pid} died (exit status -9) with" in caplog.text
    assert not hung.is_running()
    bridge.close()
    assert failures == []


def test_an_engine_without_work_may_be_silent(config, caplog):
    bridge = EngineBridge(config, lambda error: None, engine_timeout=0.3)
    bridge.start()
    engine = engine_of_this_process()
    time.sleep(1.0)
    assert engine.is_running()
    assert "said nothing" not in caplog.text
    bridge.close()


def test_an_engine_that_hangs_while_it_loads_again_is_killed_too(config, monkeypatch, caplog):
    monkeypatch.setattr(bridge_module, "SLOWER_LOADS", 0)
    bridge = EngineBridge(config, lambda error: None, engine_timeout=1.0)
    bridge.start()
    bridge._load_timeout = 0.5  # less than any load takes: each of them counts as hanging
    engine_of_this_process().kill()
    wait_for("the second load to be given up", lambda: caplog.text.count("said nothing") >= 2)
    assert "died while it loaded (exit status -9)" in caplog.text
    bridge.close()


def test_close_does_not_wait_for_an_engine_that_loads(config):
    bridge = EngineBridge(config, lambda error: None)
    bridge.start()
    engine_of_this_process().kill()
    loading = wait_for("the next engine", lambda: bridge._loading)
    psutil.Process(loading.pid).suspend()  # to wait for it would be for ever
    bridge.close()
    assert [c for c in psutil.Process().children() if "engine" in c.cmdline()] == []


def test_the_engine_ends_when_its_pipe_closes(config):
    engine = EngineProcess(config)
    engine.receive()
    process = psutil.Process(engine.pid)
    engine._writer.close()
    process.wait(60)
    engine.close()


def test_a_broken_sink_is_a_failure_and_no_silence(config):
    failed = threading.Event()
    bridge = EngineBridge(config, lambda error: failed.set())
    bridge.start()

    def broken(output):
        raise RuntimeError("a bug")

    bridge.submit(requests(1), broken)
    assert failed.wait(60)
    bridge.close()
