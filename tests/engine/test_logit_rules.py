"""What requests ask of their logits, resolved: bans, spellings, errors, and what rows share."""

from __future__ import annotations

import math
from typing import Any

import pytest

from engine.errors import RequestError
from engine.logit_rules import LogitRuleBook, TokenBias
from engine.sampling_params import SamplingParams
from tests.support.tiny_model import byte_tokenizer

pytestmark = pytest.mark.quick

VOCAB = 300  # more than the tokenizer's 260, as padded models have
EOS = 257


@pytest.fixture(scope="module")
def book() -> LogitRuleBook:
    return LogitRuleBook(byte_tokenizer().backend_tokenizer, VOCAB, [EOS])


def ids(text: str) -> tuple[int, ...]:
    return tuple(byte_tokenizer().backend_tokenizer.encode(text, add_special_tokens=False).ids)


def table(bias: TokenBias | None) -> dict[int, float]:
    assert bias is not None
    assert bias.rest == 0
    return dict(zip(bias.token_ids, bias.values, strict=True))


def test_a_row_that_asks_for_nothing_has_no_rules(book: LogitRuleBook) -> None:
    plain = SamplingParams(temperature=1.0, top_k=3, min_p=0.5, stop=("x",), stop_token_ids=(5,))
    assert book.rules_of(plain) is None
    assert book.rules_of(SamplingParams(repetition_penalty=1.0, logit_bias=())) is None


@pytest.mark.parametrize("name", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
def test_a_penalty_needs_the_tokens_and_nothing_else(book: LogitRuleBook, name: str) -> None:
    rules = book.rules_of(SamplingParams(**{name: 0.5}))
    assert rules is not None
    assert rules.penalizes
    assert rules.bias is rules.early_bias is rules.banned is None


def test_biases_and_bans_are_one_table(book: LogitRuleBook) -> None:
    rules = book.rules_of(
        SamplingParams(logit_bias=((5, 1.5), (6, 2.0)), bad_words_ids=((6,), (7,)))
    )
    assert rules is not None
    assert table(rules.bias) == {5: 1.5, 6: -math.inf, 7: -math.inf}
    assert not rules.penalizes


def test_what_is_not_allowed_is_banned(book: LogitRuleBook) -> None:
    rules = book.rules_of(
        SamplingParams(
            allowed_token_ids=(5, 9, 5, 6), logit_bias=((9, -1.0), (8, 3.0)), bad_words_ids=((6,),)
        )
    )
    assert rules is not None
    assert rules.bias is not None
    assert rules.bias.rest == -math.inf
    assert dict(zip(rules.bias.token_ids, rules.bias.values, strict=True)) == {5: 0.0, 9: -1.0}


@pytest.mark.parametrize(
    ("ignore_eos", "banned"), [(False, {EOS, 5}), (True, {5})], ids=["eos", "ignored"]
)
def test_what_would_end_the_answer_is_banned_at_first(
    book: LogitRuleBook, ignore_eos: bool, banned: set[int]
) -> None:
    rules = book.rules_of(
        SamplingParams(
            min_tokens=3, stop_token_ids=(5, 1 << 40), ignore_eos=ignore_eos, logit_bias=((5, 2.0),)
        )
    )
    assert rules is not None
    assert table(rules.bias_after(0)) == dict.fromkeys(banned, -math.inf)
    assert rules.bias_after(2) is rules.bias_after(0)
    assert table(rules.bias_after(3)) == {5: 2.0}


def test_a_word_is_banned_as_it_is_and_behind_a_space(book: LogitRuleBook) -> None:
    rules = book.rules_of(SamplingParams(bad_words=("ab", " cd", "é")))
    assert rules is not None
    assert rules.banned is not None
    expected = {ids(text) for text in ("ab", " ab", " cd", "é", " é")}
    assert set(rules.banned.sequences) == expected
    assert rules.banned.longest == 3
    assert rules.bias is None


def test_words_of_one_token_and_of_several_go_apart(book: LogitRuleBook) -> None:
    rules = book.rules_of(SamplingParams(bad_words=("a",), bad_words_ids=((9,), (1, 2, 3))))
    assert rules is not None
    assert table(rules.bias) == dict.fromkeys((ids("a")[0], 9), -math.inf)
    assert rules.banned is not None
    assert set(rules.banned.sequences) == {ids(" a"), (1, 2, 3)}


def test_rows_that_ask_for_the_same_share_all_but_their_own_rules(book: LogitRuleBook) -> None:
    asked: dict[str, Any] = {"logit_bias": ((5, 1.0),), "bad_words": ("ab",), "min_tokens": 2}
    first, second = (book.rules_of(SamplingParams(seed=i, **asked)) for i in range(2))
    assert first is not None
    assert second is not None
    assert first is not second
    assert first.bias is second.bias
    assert first.early_bias is second.early_bias
    assert first.banned is second.banned


@pytest.mark.parametrize(
    ("asked", "field", "said"),
    [
        ({"logit_bias": ((300, 1.0),)}, "logit_bias", "token id 300; the model's are 0 to 299"),
        ({"allowed_token_ids": (1, 301)}, "allowed_token_ids", "token id 301"),
        ({"bad_words_ids": ((1, 2), (3, 302))}, "bad_words_ids", "token id 302"),
        ({"bad_words": ("x" * 65,)}, "bad_words", "is 65 tokens; a word must be 1 to 64"),
        (
            {"allowed_token_ids": (5, 6), "bad_words_ids": ((5,), (6,))},
            "allowed_token_ids",
            "bad_words",
        ),
        ({"allowed_token_ids": (EOS,), "min_tokens": 1}, "allowed_token_ids", "min_tokens"),
    ],
)
def test_what_can_never_work_is_refused(
    book: LogitRuleBook, asked: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        book.rules_of(SamplingParams(**asked))
    assert (caught.value.code, caught.value.field) == ("invalid_parameter", field)
