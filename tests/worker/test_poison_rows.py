"""Rows that kill real engines, through the bridge."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.request import FinishReason, Request, RequestOutput
from engine.sampling_params import SamplingParams
from tests.support.poisoned import poison, poison_tokens
from tests.support.tiny_model import build_tiny_model
from worker.bridge import EngineBridge
from worker.suspects import DEATHS_ALONE


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny"))


class Running:
    """A bridge to engines that die of poison, and the answers that came."""

    def __init__(self, model: Path, **poisoned: Any) -> None:
        config = {"model": str(model), "num_blocks": 64, "max_num_seqs": 2, "threads": 1,
                  "max_model_len": 256, "check_invariants": True}  # fmt: skip
        self.failures: list[Exception] = []
        self.answers: dict[str, RequestOutput] = {}
        self._done = threading.Event()
        self._expected = 0
        # Only an engine that is to hang is waited for; a slow one must not be taken for it.
        patience = 5.0 if poisoned["how"] == "hang" else 60.0
        self.bridge = EngineBridge(
            config, self._fail, engine_timeout=patience, engine_env=poison(**poisoned)
        )
        self.bridge.start()

    def answer(self, *requests: Request) -> dict[str, RequestOutput]:
        self._expected = len(requests)
        self.bridge.submit(requests, self._take)
        assert self._done.wait(240), f"{len(self.answers)} answers"
        assert self.failures == []
        self.bridge.close()  # its thread has logged all it has to say of the last death, too
        return self.answers

    def _take(self, output: RequestOutput) -> None:
        assert output.request_id not in self.answers, "answered twice"
        self.answers[output.request_id] = output
        if len(self.answers) == self._expected:
            self._done.set()

    def _fail(self, error: Exception) -> None:
        self.failures.append(error)
        self._done.set()


@pytest.fixture
def running(request: pytest.FixtureRequest, model: Path) -> Iterator[Running]:
    made = Running(model, **request.param)
    yield made
    made.bridge.close()


def row(name: str, prompt: tuple[int, ...] = (1, 2, 3), samples: int = 1) -> list[Request]:
    rules = SamplingParams(8, temperature=1.0, ignore_eos=True)
    return [Request(f"{name}:{i}", prompt, rules, sample_index=i) for i in range(samples)]


def bad_row(name: str, samples: int = 1) -> list[Request]:
    return row(name, (1, 2, *poison_tokens(), 3), samples)


@pytest.mark.parametrize("running", [{"how": "kill"}], indirect=True)
def test_the_row_that_kills_is_found_beside_others_and_its_samples_are_one_row(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    found = running.answer(*row("a"), *bad_row("bad", 3), *row("b", samples=2), *row("c"))
    errors = {i for i, o in found.items() if o.finish_reason is FinishReason.ERROR}
    assert errors == {"bad:0", "bad:1", "bad:2"}
    for request_id in errors:
        assert found[request_id].error_code == "engine_crashed"
        message = found[request_id].error_message or ""
        assert f"died {DEATHS_ALONE} times while it computed this row alone" in message
        assert "it was killed by SIGKILL" in message
    assert all(o.completion_tokens == 8 for i, o in found.items() if i not in errors)
    assert caplog.text.count("the engine died") == 1, "a row is blamed once"


@pytest.mark.parametrize("running", [{"how": "add"}], indirect=True)
def test_a_row_that_the_engine_cannot_even_queue_is_its_own_error(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    found = running.answer(*row("a"), *bad_row("bad"), *row("b"))
    assert found["bad:0"].error_code == "engine_error"
    assert "RuntimeError: no room in a table" in (found["bad:0"].error_message or "")
    assert found["a:0"].completion_tokens == found["b:0"].completion_tokens == 8
    assert "died" not in caplog.text


@pytest.mark.parametrize(
    ("running", "seen", "status"),
    [
        ({"how": "raise"}, "it ended with RuntimeError: device-side assert triggered", 1),
        ({"how": "garble"}, "killed by SIGKILL (it sent what cannot be read: ", -9),
        (
            {"how": "hang", "at_token": 0},
            "killed by SIGKILL (it hung: it had work and said nothing",
            -9,
        ),
    ],
    indirect=["running"],
)
def test_the_only_row_there_is_may_be_the_one_that_kills(
    running: Running, seen: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    (answer,) = running.answer(*bad_row("bad")).values()
    assert answer.error_code == "engine_crashed"
    assert seen in (answer.error_message or "")
    assert caplog.text.count(f"died (exit status {status}) with 1 requests") == DEATHS_ALONE
