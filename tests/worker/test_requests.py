"""Rows of the normalized copy become requests, or error rows, never an exception."""

import json

import pytest

from engine.errors import RequestError
from worker.requests import derived_seed, prepare, row_params

pytestmark = pytest.mark.quick


class Encoder:
    """One token a character; refuses messages whose first role is `tool`."""

    longest_token = 1

    def render(self, messages):
        if messages[0]["role"] == "tool":
            raise RequestError("chat_template_refused", "no", "messages")
        return "".join(m["content"] for m in messages)

    def encode_chats(self, texts):
        return [[ord(c) for c in t] for t in texts]

    def encode_prompts(self, texts):
        return [[0, *(ord(c) for c in t)] for t in texts]


def row(index, *, prompt=None, messages=None, params=None):
    return {
        "row_index": index,
        "line": index + 1,
        "prompt": prompt,
        "messages": None if messages is None else json.dumps(messages),
        "params": None if params is None else json.dumps(params),
    }


def user(text, role="user"):
    return [{"role": role, "content": text}]


def test_chats_and_prompts_keep_their_rows(lease):
    rows = [row(0, prompt="ab"), row(1, messages=user("cd")), row(2, prompt="e")]
    (batch,) = prepare(lease, rows, Encoder(), 100)
    found = {batch.row_indices[r.request_id]: r.token_ids for r in batch.requests}
    assert found == {0: (0, 97, 98), 1: (99, 100), 2: (0, 101)}
    assert {r.priority for r in batch.requests} == {1}


def test_bad_rows_are_error_rows_and_the_others_go_on(lease):
    rows = [
        row(0, messages=user("x", role="tool")),
        row(1, prompt="ok"),
        row(2, prompt="ok", params={"temperature": -1}),
    ]
    (batch,) = prepare(lease, rows, Encoder(), 100)
    assert list(batch.row_indices.values()) == [1]
    assert [(r.row_index, r.error.code, r.error.line, r.error.field) for r in batch.refused] == [
        (0, "chat_template_refused", 1, "messages"),
        (2, "invalid_parameter", 3, "temperature"),
    ]


def test_many_rows_come_in_batches_in_order(lease):
    rows = [row(i, prompt="x") for i in range(200)]
    batches = list(prepare(lease, rows, Encoder(), 100))
    assert len(batches) > 1
    assert [i for b in batches for i in b.row_indices.values()] == list(range(200))


def test_the_rows_own_parameters_win(lease):
    params = row_params(lease, row(0, prompt="x", params={"max_tokens": 3, "stop": "END"}))
    assert (params.max_tokens, params.stop) == (3, ("END",))
    params = row_params(lease, row(0, prompt="x"))
    assert (params.max_tokens, params.stop) == (9, ("###",))


def test_a_row_without_a_seed_gets_its_own(lease):
    seeds = {row_params(lease, row(i, prompt="x")).seed for i in range(100)}
    assert len(seeds) == 100
    assert row_params(lease, row(5, prompt="x")).seed == derived_seed(7, 5)
    assert row_params(lease, row(5, prompt="x", params={"seed": 1})).seed == 1


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
