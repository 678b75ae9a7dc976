"""Choices, log probabilities and tools on a real engine: from rows to published answers."""

from __future__ import annotations

import json
import math
import threading

import psutil
import pytest

from jobs.database import Database, upgrade
from jobs.export import export_file
from jobs.formats import OutputFormat
from jobs.results import open_version
from jobs.settings import Settings
from jobs.states import JobState
from jobs.storage import Storage
from jobs.store import Store
from jobs.submission import Submission, prepare
from tests.support.deployment import wait_for
from tests.support.openai_shapes import check_line
from tests.support.tiny_model import build_tiny_model, byte_tokenizer
from worker.options import WorkerOptions
from worker.runtime import Worker

TEMPLATE = (
    "{% for t in tools or [] %}{{ t.function.name }};{% endfor %}{{ tone }}"
    "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
)
TOOL = {"type": "function", "function": {"name": "look_up"}}


def user(text):
    return [{"role": "user", "content": text}]


# Long enough to be killed in between; sampled, so that choices differ.
TOKENS = 300
LONG = {"max_tokens": TOKENS, "temperature": 1.0, "ignore_eos": True}
ROWS = [
    {"messages": user("hi"), "n": 3, "logprobs": 2, "tools": [TOOL], **LONG},
    {"messages": user("hi"), "chat_template_kwargs": {"tone": "dry;"}, **LONG},
    {"prompt": "once", "n": 2, **LONG},
    {"prompt": "once", "logprobs": 0, **LONG},
    {"prompt": "x" * 3000, "n": 2},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = build_tiny_model(tmp_path_factory.mktemp("tiny"))
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return str(folder)


class Place:
    """A deployment with one worker, which runs in this process."""

    def __init__(self, home, model):
        home.mkdir()
        self.settings = Settings.from_env(
            {"PAGEMILL_HOME": str(home), "PAGEMILL_SPOOL_SECONDS": "0.1"}
        )
        upgrade(self.settings.database_url)
        self.database = Database(self.settings.database_url)
        self.store = Store(self.database, lease_seconds=60)
        self.storage = Storage(self.settings.storage_url)
        path = home / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        submission = Submission(input=str(path), model=model, seed=5)
        self.job = self.store.insert_job(prepare(submission, self.storage)).id
        engine = {
            "model": model, "num_blocks": 256, "max_num_seqs": 4, "threads": 1,
            "max_model_len": 512, "check_invariants": True,
        }  # fmt: skip
        self.worker = Worker(WorkerOptions(self.settings, model, engine), self.store, self.storage)
        self.worker.start()

    def answer(self, disturb=lambda: None):
        """The job's rows when all of them are published; `disturb` may do harm in between."""
        thread = threading.Thread(target=self.worker.run_chunk)
        thread.start()
        disturb()
        thread.join(120)
        job = self.store.job(self.job)
        assert job.state is JobState.COMPLETED
        version = open_version(self.storage, job)
        return job, [row for group in version.groups() for row in group.to_pylist()]

    def close(self):
        self.worker.close()
        self.database.close()


@pytest.fixture
def make_place(tmp_path, model):
    made = []

    def make(name):
        made.append(Place(tmp_path / name, model))
        return made[-1]

    yield make
    for place in made:
        place.close()


def kill_engine(place):
    """`kill -9` as soon as the engine is known to compute; a fast one is soon through."""
    wait_for("rows to run", lambda: place.worker._bridge.running())
    next(c for c in psutil.Process().children() if "engine" in c.cmdline()).kill()


def test_choices_log_probabilities_and_tools_and_none_changes_when_an_engine_dies(
    make_place, tmp_path
):
    place = make_place("calm")
    job, calm = place.answer()
    check_rows(job, calm)
    check_openai(place, job, calm, tmp_path / "out.jsonl")
    place.close()

    place = make_place("stormy")
    _, stormy = place.answer(lambda: kill_engine(place))
    assert place.worker.look().engine_restarts == 1
    for one, other in zip(calm, stormy, strict=True):
        assert one.keys() == other.keys()
        for key in one.keys() - {"cached_tokens", "choices", "logprobs"}:
            assert one[key] == other[key]
        same_logprobs(one["logprobs"], other["logprobs"])
        for choice, again in zip(one["choices"] or (), other["choices"] or (), strict=True):
            assert choice["text"] == again["text"]
            same_logprobs(choice["logprobs"], again["logprobs"])


def same_logprobs(one, other):
    """The tokens are the same; numbers may differ a little with the batch that they came from."""
    assert (one is None) == (other is None)
    for token, again in zip(one or (), other or (), strict=True):
        assert token["token_id"] == again["token_id"]
        assert token["logprob"] == pytest.approx(again["logprob"], abs=1e-4)


def check_rows(job, rows):
    first, toned, twice, single, too_long = rows
    assert [len(row["choices"] or ()) for row in rows] == [3, 0, 2, 0, 0]
    assert len({c["text"] for c in first["choices"]}) == 3  # each has random numbers of its own
    assert first["text"] == first["choices"][0]["text"]
    assert first["completion_tokens"] == 3 * TOKENS
    # The template put them into the prompt: a token a character in this model.
    assert first["prompt_tokens"] == len("look_up;user:hi\n")
    assert toned["prompt_tokens"] == len("dry;user:hi\n")
    assert too_long["error"]["code"] == "prompt_too_long"
    assert too_long["choices"] is None
    assert job.counts.completed == 4
    assert job.counts.prompt_tokens == sum(row["prompt_tokens"] for row in rows)

    for choice in (*first["choices"], single):
        assert len(choice["logprobs"]) == TOKENS
        assert (
            b"".join(t["bytes"] for t in choice["logprobs"]).decode(errors="replace")
            == (choice["text"])
        )
    for token in first["logprobs"]:
        best = [t["logprob"] for t in token["top"]]
        assert len(best) == 2
        assert best == sorted(best, reverse=True)
        assert token["logprob"] <= best[0] + 1e-6
        assert math.exp(best[0]) + math.exp(best[1]) <= 1 + 1e-5
    assert all(token["top"] == [] for token in single["logprobs"])
    assert toned["logprobs"] is None
    assert all(c["logprobs"] is None for c in twice["choices"])


def check_openai(place, job, rows, path):
    assert export_file(open_version(place.storage, job), path, OutputFormat.OPENAI) == len(rows)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        check_line(line)
    bodies = [line["response"]["body"] for line in lines[:4]]
    assert [body["object"] for body in bodies] == [
        "chat.completion", "chat.completion", "text_completion", "text_completion",
    ]  # fmt: skip
    assert [len(body["choices"]) for body in bodies] == [3, 1, 2, 1]
    assert lines[4]["error"]["code"] == "prompt_too_long"
