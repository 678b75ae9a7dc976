"""Sampling parameters: limits, and what a key means."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import RequestError
from engine.sampling_params import SamplingParams
from jobs.errors import RowError, UsageError
from jobs.job_options import check_sampling
from jobs.keys import Kind, Meaning, meaning
from jobs.parameters import CHECKS, check_parameter, shown
from jobs.unsupported import UNSUPPORTED, check_neutral

pytestmark = pytest.mark.quick

ACCEPTED = [
    ("max_tokens", 1, 1),
    ("temperature", 0, 0.0),
    ("temperature", 1.5, 1.5),
    ("top_k", 0, 0),
    ("top_p", 1, 1.0),
    ("seed", 2**63 - 1, 2**63 - 1),
    ("stop", "END", ["END"]),
    ("stop", [], []),
    ("stop", ["a"] * 16, ["a"] * 16),
    ("stop_token_ids", [0, 2], [0, 2]),
    ("min_p", 0, 0.0),
    ("min_p", 1, 1.0),
    ("repetition_penalty", 0.01, 0.01),
    ("repetition_penalty", 100, 100.0),
    ("presence_penalty", -2, -2.0),
    ("frequency_penalty", 2, 2.0),
    ("logit_bias", {}, {}),
    ("logit_bias", {"0": -100, "50256": 2.5}, {"0": -100.0, "50256": 2.5}),
    ("logit_bias", '{"7": 1}', {"7": 1.0}),
    ("allowed_token_ids", [5], [5]),
    ("bad_words", "no", ["no"]),
    ("bad_words", [], []),
    ("bad_words_ids", [[1], [2, 3]], [[1], [2, 3]]),
    ("min_tokens", 0, 0),
    ("include_stop_str_in_output", True, True),
    ("ignore_eos", False, False),
    ("n", 1, 1),
    ("n", 128, 128),
    ("logprobs", 0, 0),
    ("logprobs", 20, 20),
    ("use_beam_search", True, True),
    ("num_beams", 64, 64),
    ("length_penalty", -10, -10.0),
    ("early_stopping", True, True),
    ("early_stopping", "never", "never"),
]


@pytest.mark.parametrize(("name", "value", "expected"), ACCEPTED)
def test_a_value_within_the_limits_is_taken(name: str, value: Any, expected: Any) -> None:
    checked = check_parameter(name, value)
    assert checked == expected
    assert type(checked) is type(expected)


REFUSED = [
    ("max_tokens", 0, "invalid_parameter", "max_tokens"),
    ("max_tokens", -1, "invalid_parameter", "max_tokens"),
    ("max_tokens", 2**63, "invalid_parameter", "max_tokens"),
    ("max_tokens", 1.0, "wrong_type", "max_tokens"),
    ("max_tokens", True, "wrong_type", "max_tokens"),
    ("max_tokens", "5", "wrong_type", "max_tokens"),
    ("temperature", -0.1, "invalid_parameter", "temperature"),
    ("temperature", float("nan"), "invalid_parameter", "temperature"),
    ("temperature", float("inf"), "invalid_parameter", "temperature"),
    ("temperature", 10**400, "invalid_parameter", "temperature"),
    ("temperature", False, "wrong_type", "temperature"),
    ("temperature", "hot", "wrong_type", "temperature"),
    ("top_k", -1, "invalid_parameter", "top_k"),
    ("top_p", 0, "invalid_parameter", "top_p"),
    ("top_p", 1.01, "invalid_parameter", "top_p"),
    ("seed", -1, "invalid_parameter", "seed"),
    ("seed", 2**63, "invalid_parameter", "seed"),
    ("stop", "", "invalid_parameter", "stop"),
    ("stop", ["a", ""], "invalid_parameter", "stop[1]"),
    ("stop", ["a"] * 17, "invalid_parameter", "stop"),
    ("stop", [1], "wrong_type", "stop[0]"),
    ("stop", 7, "wrong_type", "stop"),
    ("stop_token_ids", 2, "wrong_type", "stop_token_ids"),
    ("stop_token_ids", [1, -2], "invalid_parameter", "stop_token_ids[1]"),
    ("stop_token_ids", [True], "wrong_type", "stop_token_ids[0]"),
    ("ignore_eos", 1, "wrong_type", "ignore_eos"),
    ("min_p", -0.1, "invalid_parameter", "min_p"),
    ("min_p", 1.1, "invalid_parameter", "min_p"),
    ("min_p", float("nan"), "invalid_parameter", "min_p"),
    ("repetition_penalty", 0, "invalid_parameter", "repetition_penalty"),
    ("repetition_penalty", 101, "invalid_parameter", "repetition_penalty"),
    ("presence_penalty", 2.1, "invalid_parameter", "presence_penalty"),
    ("frequency_penalty", -2.1, "invalid_parameter", "frequency_penalty"),
    ("frequency_penalty", True, "wrong_type", "frequency_penalty"),
    ("logit_bias", [[1, 2]], "wrong_type", "logit_bias"),
    ("logit_bias", "{", "invalid_json", "logit_bias"),
    ("logit_bias", {"7": "x"}, "wrong_type", "logit_bias.7"),
    ("logit_bias", {"7": 100.5}, "invalid_parameter", "logit_bias.7"),
    *(
        ("logit_bias", {key: 1}, "invalid_parameter", "logit_bias")
        for key in ("-1", "07", "x", "", "1.0", "\u0663", "9" * 5000)
    ),
    ("logit_bias", dict.fromkeys(map(str, range(1025)), 1), "invalid_parameter", "logit_bias"),
    ("allowed_token_ids", [], "invalid_parameter", "allowed_token_ids"),
    ("allowed_token_ids", [0] * 65_537, "invalid_parameter", "allowed_token_ids"),
    ("allowed_token_ids", [1, -1], "invalid_parameter", "allowed_token_ids[1]"),
    ("bad_words", ["a", ""], "invalid_parameter", "bad_words[1]"),
    ("bad_words", ["a"] * 257, "invalid_parameter", "bad_words"),
    ("bad_words_ids", [1], "wrong_type", "bad_words_ids[0]"),
    ("bad_words_ids", [[1], []], "invalid_parameter", "bad_words_ids[1]"),
    ("bad_words_ids", [[0] * 65], "invalid_parameter", "bad_words_ids[0]"),
    ("bad_words_ids", [[1]] * 257, "invalid_parameter", "bad_words_ids"),
    ("bad_words_ids", [[1, -2]], "invalid_parameter", "bad_words_ids[0][1]"),
    ("min_tokens", -1, "invalid_parameter", "min_tokens"),
    ("include_stop_str_in_output", "yes", "wrong_type", "include_stop_str_in_output"),
    ("n", 0, "invalid_parameter", "n"),
    ("n", 129, "invalid_parameter", "n"),
    ("n", "2", "wrong_type", "n"),
    ("logprobs", -1, "invalid_parameter", "logprobs"),
    ("logprobs", 21, "invalid_parameter", "logprobs"),
    ("logprobs", True, "wrong_type", "logprobs"),
    ("use_beam_search", 1, "wrong_type", "use_beam_search"),
    ("num_beams", 0, "invalid_parameter", "num_beams"),
    ("num_beams", 65, "invalid_parameter", "num_beams"),
    ("length_penalty", 10.5, "invalid_parameter", "length_penalty"),
    ("length_penalty", "long", "wrong_type", "length_penalty"),
    ("early_stopping", "always", "invalid_parameter", "early_stopping"),
    ("early_stopping", 1, "wrong_type", "early_stopping"),
]


@pytest.mark.parametrize(("name", "value", "code", "field"), REFUSED)
def test_a_value_beyond_the_limits_is_refused(name: str, value: Any, code: str, field: str) -> None:
    with pytest.raises(RowError) as caught:
        check_parameter(name, value)
    assert (caught.value.code, caught.value.field) == (code, field)
    said = ("is not JSON", "has a key") if name == "logit_bias" else ()
    assert str(caught.value).startswith((f"{field} is ", *(f"{field} {what}" for what in said)))


_edges = st.sampled_from([-1, 0, 1, 2**31, 2**63 - 1, 2**63])
_whole = st.one_of(_edges, st.integers(-10, 10))
_real = st.one_of(st.floats(), st.sampled_from([-1e-300, 0.0, 1.0, 1 + 1e-9]))


def _sized(items: st.SearchStrategy[Any], limit: int) -> st.SearchStrategy[list[Any]]:
    """Short lists, and ones about as long as the limit."""
    sizes = st.integers(limit - 1, limit + 1)
    return st.lists(items, max_size=3) | st.builds(lambda item, n: [item] * n, items, sizes)


def _tokens(limit: int) -> st.SearchStrategy[list[int]]:
    return _sized(st.integers(-1, 300), limit)


_bias = st.sampled_from([-100.5, 100.5]) | st.floats(-100, 100)
_biases = st.dictionaries(st.integers(0, 300).map(str), _bias, max_size=3) | st.builds(
    lambda bias, n: {str(token): bias for token in range(n)}, _bias, st.integers(1023, 1025)
)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(
    st.one_of(
        st.tuples(st.sampled_from(["top_p", "temperature", "min_p"]), _real),
        st.tuples(st.just("repetition_penalty"), _real | st.floats(0, 0.02) | st.floats(99, 101)),
        st.tuples(
            st.sampled_from(["presence_penalty", "frequency_penalty"]), _real | st.floats(-2.1, 2.1)
        ),
        st.tuples(st.just("logit_bias"), _biases),
        st.tuples(st.just("allowed_token_ids"), _tokens(65_536)),
        st.tuples(st.just("bad_words"), _sized(st.text(max_size=2), 256)),
        st.tuples(st.just("bad_words_ids"), _sized(_tokens(64), 256)),
        st.tuples(st.just("stop_token_ids"), _tokens(3)),
        st.tuples(st.just("include_stop_str_in_output"), st.booleans()),
        # The engine has no upper end of its own for counts.
        st.tuples(
            st.sampled_from(["max_tokens", "min_tokens", "top_k"]),
            _whole.filter(lambda n: n < 2**63),
        ),
        st.tuples(st.just("seed"), _whole),
        st.tuples(st.just("logprobs"), st.one_of(_whole, st.integers(18, 22))),
        st.tuples(st.just("stop"), st.lists(st.text(max_size=2), max_size=3)),
        st.tuples(st.just("ignore_eos"), st.booleans()),
        st.tuples(st.just("num_beams"), st.one_of(_whole, st.integers(60, 70))),
        st.tuples(st.just("length_penalty"), st.one_of(_real, st.floats(-12, 12))),
        st.tuples(st.just("early_stopping"), st.sampled_from([True, False, "never", "x", 1, 0])),
    )
)
def test_the_engine_has_the_same_limits(parameter: tuple[str, Any]) -> None:
    name, value = parameter
    try:
        check_parameter(name, value)
        here = True
    except RowError:
        here = False
    params = {"max_tokens": 2**63 - 1, name: value}
    if name in ("length_penalty", "early_stopping"):
        params["num_beams"] = 2
    try:
        SamplingParams.from_json(params)
        there = True
    except RequestError:
        there = False
    assert here == there


def test_the_engine_has_the_same_parameters() -> None:
    # The worker asks the engine for so many answers, or for so many of a search.
    ours, theirs = {"n", "use_beam_search"}, {"num_return_sequences"}
    fields = set(SamplingParams.__dataclass_fields__) - {"grammar"}  # see test_structured.py
    assert set(CHECKS) - ours == fields - theirs


MISSPELT = {
    "temprature": "temperature",
    "tempurature": "temperature",
    "Temperature": "temperature",
    "temp": "temperature",
    "max_token": "max_tokens",
    "maxTokens": "max_tokens",
    "max-tokens": "max_tokens",
    "max_new_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "top-p": "top_p",
    "topP": "top_p",
    "topk": "top_k",
    "minP": "min_p",
    "min_new_tokens": "min_tokens",
    "mintokens": "min_tokens",
    "presencePenalty": "presence_penalty",
    "repetition_penality": "repetition_penalty",
    "logits_bias": "logit_bias",
    "bad_word": "bad_words",
    "bad_word_ids": "bad_words_ids",
    "Seed": "seed",
    "stop_sequences": "stop",
    "stop_token_id": "stop_token_ids",
    "ignore_eso": "ignore_eos",
    "customId": "custom_id",
    "N": "n",
    "logprob": "logprobs",
    "beam_width": "num_beams",
    "numBeams": "num_beams",
    "earlyStopping": "early_stopping",
    "num_return_sequences": "n",
    "Tools": "tools",
    "chat_template_kwarg": "chat_template_kwargs",
    "template_kwargs": "chat_template_kwargs",
    "Prompt": "prompt",
    "MESSAGES": "messages",
}


@pytest.mark.parametrize(("key", "near"), MISSPELT.items())
def test_a_near_miss_names_what_was_meant(key: str, near: str) -> None:
    assert meaning(key).kind is Kind.MISSPELT
    assert meaning(key).name == near


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("typical_p", "typical_p"),
        ("typicalP", "typical_p"),
        ("guided_json", "guided_json"),
    ],
)
def test_parameters_that_we_do_not_have_are_known(key: str, name: str) -> None:
    assert meaning(key) == Meaning(Kind.UNSUPPORTED, name)


@pytest.mark.parametrize("key", ["tools", "tool_choice", "chat_template_kwargs"])
def test_what_goes_to_the_chat_template(key: str) -> None:
    assert meaning(key).kind is Kind.CHAT


@pytest.mark.parametrize(("name", "values"), UNSUPPORTED.items())
def test_a_value_that_changes_nothing_is_taken_and_no_other(
    name: str, values: tuple[Any, ...]
) -> None:
    for value in (None, *values):
        check_neutral(name, name, value, {}, "")
    for other in (2, "x", [1], {"a": 1}, 0.5, math.nan):
        with pytest.raises(RowError, match=f"does not support {name}") as caught:
            check_neutral(name, name, other, {}, "")
        assert (caught.value.code, caught.value.field) == ("unsupported_parameter", name)


def test_numbers_that_change_nothing_are_no_booleans() -> None:
    check_neutral("mirostat", "mirostat", 0.0, {}, "")
    for name, value in (("mirostat", False), ("stream", 0), ("typical_p", True)):
        with pytest.raises(RowError, match="which changes nothing"):
            check_neutral(name, name, value, {}, "")


def test_the_best_of_as_many_as_are_asked_for_changes_nothing() -> None:
    check_neutral("best_of", "best_of", 3, {"n": 3}, "")
    for row in ({"n": 2}, {}):
        with pytest.raises(RowError, match="n is how many answers"):
            check_neutral("best_of", "best_of", 3, row, "")


@pytest.mark.parametrize(
    "key",
    [
        *(
            "id",
            "text",
            "seen",
            "need",
            "shop",
            "stops",
            "step",
            "topic",
            "channel",
            "",
            "ä",
            "tool",
            "n_tokens",
            "num_tokens",
            "ad_words",
            "penalty",
        ),
        *("temperature_c", "max_tokens_used", "literature", "signature", "guided", "model"),
        "temperature" * 1000,
    ],
)
def test_keys_of_the_users_own_are_data(key: str) -> None:
    assert meaning(key).kind is Kind.DATA


def test_job_defaults_are_checked_as_those_of_a_row() -> None:
    assert check_sampling({"stop": "x", "top_k": None, "temperature": 1}) == {
        "stop": ["x"],
        "temperature": 1.0,
    }
    with pytest.raises(UsageError, match="max_tokens is 0; it must be 1 or more"):
        check_sampling({"max_tokens": 0})
    with pytest.raises(UsageError, match="did you mean temperature"):
        check_sampling({"temprature": 0})
    with pytest.raises(UsageError, match=r"'prompt' is no sampling parameter; known: max_tokens"):
        check_sampling({"prompt": "x"})


@pytest.mark.parametrize("value", ["x" * 10**6, [0] * 10**6, {"a": 1}, 10**4000, None, True, 1.5])
def test_a_message_shows_little_of_any_value(value: object) -> None:
    assert 0 < len(shown(value)) < 120
