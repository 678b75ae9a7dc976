"""Rows of the normalized copy become requests, or error rows, never an exception."""

import dataclasses
import json

import pytest

from engine.errors import RequestError
from engine.sampling_params import SamplingParams
from worker.requests import COLUMNS, derived_seed, prepare, row_sampling

pytestmark = pytest.mark.quick


class Encoder:
    """One token a character; refuses messages whose first role is `tool`."""

    longest_token = 1

    def __init__(self):
        self.rendered = []

    def render(self, messages, tools=None, template_kwargs=None):
        if messages[0]["role"] == "tool":
            raise RequestError("chat_template_refused", "no", "messages")
        self.rendered.append((messages, tools, template_kwargs))
        return "".join(m["content"] for m in messages)

    def encode_chats(self, texts):
        return [[ord(c) for c in t] for t in texts]

    def encode_prompts(self, texts):
        return [[0, *(ord(c) for c in t)] for t in texts]


def row(index, *, prompt=None, **more):
    """A row of the normalized copy; `messages`, `chat` and `params` are JSON in it."""
    columns = {"row_index": index, "line": index + 1, "prompt": prompt}
    columns |= {name: None for name in COLUMNS if name not in columns}
    return columns | {name: json.dumps(value) for name, value in more.items()}


def user(text, role="user"):
    return [{"role": role, "content": text}]


def test_chats_and_prompts_keep_their_rows(lease):
    rows = [row(0, prompt="ab"), row(1, messages=user("cd")), row(2, prompt="e")]
    (batch,) = prepare(lease, rows, Encoder(), 100)
    found = {r.row_index: r.requests[0].token_ids for r in batch.rows}
    assert found == {0: (0, 97, 98), 1: (99, 100), 2: (0, 101)}
    assert {r.priority for r in batch.requests} == {1}


@pytest.mark.parametrize("timeout", [None, 2.5])
def test_the_time_limit_of_the_job_is_that_of_each_request(lease, timeout):
    lease = dataclasses.replace(lease, options={"row_timeout": timeout, "sampling": {"n": 2}})
    (batch,) = prepare(lease, [row(0, prompt="ab"), row(1, prompt="c")], Encoder(), 100)
    assert [r.timeout for r in batch.requests] == [timeout] * 4


def test_bad_rows_are_error_rows_and_the_others_go_on(lease):
    rows = [
        row(0, messages=user("x", role="tool")),
        row(1, prompt="ok"),
        row(2, prompt="ok", params={"temperature": -1}),
    ]
    (batch,) = prepare(lease, rows, Encoder(), 100)
    assert [r.row_index for r in batch.rows] == [1]
    assert [(r.row_index, r.error.code, r.error.line, r.error.field) for r in batch.refused] == [
        (0, "chat_template_refused", 1, "messages"),
        (2, "invalid_parameter", 3, "temperature"),
    ]


def test_many_rows_come_in_batches_in_order(lease):
    rows = [row(i, prompt="x") for i in range(200)]
    batches = list(prepare(lease, rows, Encoder(), 100))
    assert len(batches) > 1
    assert [r.row_index for b in batches for r in b.rows] == list(range(200))


def test_the_rows_own_parameters_win(lease):
    params, _ = row_sampling(lease, row(0, prompt="x", params={"max_tokens": 3, "stop": "END"}))
    assert (params.max_tokens, params.stop) == (3, ("END",))
    params, _ = row_sampling(lease, row(0, prompt="x"))
    assert (params.max_tokens, params.stop) == (9, ("###",))


def test_lists_and_objects_of_the_normalized_copy_reach_the_engine(lease):
    asked = {
        "logit_bias": {"7": 1.0, "50256": -100.0}, "allowed_token_ids": [7, 8],
        "bad_words": ["no"], "bad_words_ids": [[1, 2], [3]], "min_tokens": 2, "min_p": 0.25,
        "repetition_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": -1.0,
        "stop": ["x"], "include_stop_str_in_output": True, "stop_token_ids": [5],
    }  # fmt: skip
    lease = dataclasses.replace(lease, options={"sampling": asked | {"min_p": 0.5}})
    params, _ = row_sampling(lease, row(0, prompt="x", params={"min_p": 0.25}))
    frozen = {
        "logit_bias": ((7, 1.0), (50256, -100.0)), "allowed_token_ids": (7, 8),
        "bad_words": ("no",), "bad_words_ids": ((1, 2), (3,)), "stop": ("x",),
        "stop_token_ids": (5,),
    }  # fmt: skip
    assert params == SamplingParams(**{**asked, **frozen, "seed": derived_seed(7, 0)})


def test_a_rows_least_may_be_more_than_the_jobs_most(lease):
    rows = [row(0, prompt="ok", params={"min_tokens": 10}), row(1, prompt="ok")]
    (batch,) = prepare(lease, rows, Encoder(), 100)
    ((refused),) = batch.refused
    assert (refused.error.code, refused.error.field) == ("invalid_parameter", "min_tokens")
    assert refused.error.message == "min_tokens is 10; it must be at most max_tokens (9)"
    assert len(batch.rows) == 1


def test_a_row_without_a_seed_gets_its_own(lease):
    def seed(index, **params):
        return row_sampling(lease, row(index, prompt="x", params=params))[0].seed

    assert len({seed(i) for i in range(100)}) == 100
    assert seed(5) == derived_seed(7, 5)
    assert seed(5, seed=1) == 1


def test_a_row_of_n_is_n_requests_of_one_prompt(lease):
    encoder = Encoder()
    params = {"n": 3, "logprobs": 2, "temperature": 1.0}
    rows = [row(0, messages=user("ab"), params=params), row(1, prompt="x")]
    (batch,) = prepare(lease, rows, encoder, 100)
    samples = batch.rows[0].requests
    assert [r.sample_index for r in samples] == [0, 1, 2]
    assert len(encoder.rendered) == 1
    assert len({id(r.token_ids) for r in samples}) == 1
    assert {(r.params.seed, r.params.logprobs) for r in samples} == {(derived_seed(7, 0), 2)}
    assert batch.rows[0].seed == derived_seed(7, 0)
    assert batch.requests == (*samples, *batch.rows[1].requests)
    assert len({r.request_id for r in batch.requests}) == 4
    # The engine computes their prompt once.
    assert {r.sample_of for r in samples} == {samples[0].request_id}
    assert batch.rows[1].requests[0].sample_of is None


@pytest.mark.parametrize(
    ("params", "num_beams", "best"),
    [
        ({"num_beams": 4}, 4, 1),
        ({"num_beams": 4, "n": 3}, 4, 3),
        ({"use_beam_search": True, "n": 3}, 3, 3),
        ({"use_beam_search": True, "num_beams": 5, "n": 3}, 5, 3),
    ],
)
def test_a_search_is_one_request(lease, params, num_beams, best):
    params |= {"length_penalty": 2.0, "early_stopping": "never"}
    lease = dataclasses.replace(lease, options={})
    (batch,) = prepare(lease, [row(0, prompt="x", params=params)], Encoder(), 100)
    (request,) = batch.requests
    asked = request.params
    assert (asked.num_beams, asked.num_return_sequences) == (num_beams, best)
    assert (asked.length_penalty, asked.early_stopping) == (2.0, "never")
    assert request.sample_of is None


@pytest.mark.parametrize("params", [{"num_beams": 1}, {"use_beam_search": False}])
def test_one_beam_is_no_search(lease, params):
    (batch,) = prepare(lease, [row(0, prompt="x", params=params | {"n": 2})], Encoder(), 100)
    assert [r.params.num_beams for r in batch.requests] == [1, 1]


@pytest.mark.parametrize(
    ("params", "field", "message"),
    [
        ({"use_beam_search": True}, "use_beam_search", "num_beams is 1; it must be over 1"),
        ({"use_beam_search": False, "num_beams": 2}, "use_beam_search", "leave one of them out"),
        ({"num_beams": 2, "n": 3}, "n", "n is 3, but num_beams is 2"),
        ({"num_beams": 2, "logprobs": 1}, "logprobs", "does not go with beam search"),
        ({"length_penalty": 0.5}, "length_penalty", "set num_beams over 1"),
    ],
)
def test_a_search_that_contradicts_itself_is_an_error_row(lease, params, field, message):
    lease = dataclasses.replace(lease, options={})
    rows = [row(0, prompt="x", params=params), row(1, prompt="y")]
    (batch,) = prepare(lease, rows, Encoder(), 100)
    (refused,) = batch.refused
    assert (refused.error.code, refused.error.field) == ("invalid_parameter", field)
    assert message in refused.error.message
    assert [r.row_index for r in batch.rows] == [1]


def test_n_may_be_the_jobs_and_the_rows_own_wins(lease):
    lease = dataclasses.replace(lease, options={"sampling": {"n": 2, "logprobs": 0}})
    params, n = row_sampling(lease, row(0, prompt="x"))
    assert (params.logprobs, n) == (0, 2)
    params, n = row_sampling(lease, row(0, prompt="x", params={"n": 1}))
    assert n == 1


def test_tools_and_variables_reach_the_template(lease):
    lease = dataclasses.replace(
        lease, options={"chat_template_kwargs": {"enable_thinking": False, "tone": "dry"}}
    )
    tools = [{"type": "function", "function": {"name": "f"}}]
    chat = {"tools": tools, "template_kwargs": {"enable_thinking": True}}
    encoder = Encoder()
    rows = [row(0, messages=user("a"), chat=chat), row(1, messages=user("b"))]
    list(prepare(lease, rows, encoder, 100))
    assert encoder.rendered == [
        (user("a"), tools, {"enable_thinking": True, "tone": "dry"}),
        (user("b"), None, {"enable_thinking": False, "tone": "dry"}),
    ]


def test_derived_seeds_never_change():
    """Published: a job that is resumed by a later version must sample the same."""
    assert 0 <= derived_seed(0, 0) < 2**63
    assert (derived_seed(0, 0), derived_seed(1, 2)) == (6956993988634818902, 421224856000339251)


def test_a_text_that_cannot_fit_is_not_even_tokenized(lease, monkeypatch):
    seen = []
    monkeypatch.setattr(Encoder, "encode_prompts", lambda self, texts: seen.append(texts) or [])
    (batch,) = prepare(lease, [row(0, prompt="x" * 101)], Encoder(), 100)
    assert [(r.row_index, r.error.code) for r in batch.refused] == [(0, "prompt_too_long")]
    assert seen == [[]]


class Picky(Encoder):
    """Takes no text with an x, and then none of those beside it."""

    def encode_prompts(self, texts):
        if any("x" in text for text in texts):
            raise RequestError("tokenizer_error", "an x")
        return super().encode_prompts(texts)


def test_a_text_that_the_tokenizer_does_not_take_is_its_rows_error(lease):
    rows = [
        row(0, prompt="ab"),
        row(1, prompt="axb"),
        row(2, messages=user("cd")),
        row(3, prompt="e"),
    ]
    (batch,) = prepare(lease, rows, Picky(), 100)
    assert [r.row_index for r in batch.rows] == [0, 2, 3]
    (refused,) = batch.refused
    assert (refused.row_index, refused.error.code, refused.error.line) == (1, "tokenizer_error", 2)


def test_a_row_that_nobody_foresaw_is_its_own_error(lease, caplog):
    rows = [row(0, prompt="ab"), row(1, prompt="cd", params={"of_tomorrow": 1}), row(2, prompt="e")]
    (batch,) = prepare(lease, rows, Encoder(), 100)
    assert [r.row_index for r in batch.rows] == [0, 2]
    (refused,) = batch.refused
    assert (refused.row_index, refused.error.code) == (1, "unusable_row")
    assert "of_tomorrow" in refused.error.message
    assert "row 1 of" in caplog.text
