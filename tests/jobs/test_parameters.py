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
    ("ignore_eos", False, False),
    ("n", 1, 1),
    ("n", 128, 128),
    ("logprobs", 0, 0),
    ("logprobs", 20, 20),
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
    ("n", 0, "invalid_parameter", "n"),
    ("n", 129, "invalid_parameter", "n"),
    ("n", "2", "wrong_type", "n"),
    ("logprobs", -1, "invalid_parameter", "logprobs"),
    ("logprobs", 21, "invalid_parameter", "logprobs"),
    ("logprobs", True, "wrong_type", "logprobs"),
]


@pytest.mark.parametrize(("name", "value", "code", "field"), REFUSED)
def test_a_value_beyond_the_limits_is_refused(name: str, value: Any, code: str, field: str) -> None:
    with pytest.raises(RowError) as caught:
        check_parameter(name, value)
    assert (caught.value.code, caught.value.field) == (code, field)
    assert str(caught.value).startswith(f"{field} is ")


_edges = st.sampled_from([-1, 0, 1, 2**31, 2**63 - 1, 2**63])
_whole = st.one_of(_edges, st.integers(-10, 10))
_real = st.one_of(st.floats(), st.sampled_from([-1e-300, 0.0, 1.0, 1 + 1e-9]))


@settings(deadline=None, max_examples=300)
@given(
    st.one_of(
        st.tuples(st.sampled_from(["top_p", "temperature"]), _real),
        # The engine has no upper end of its own for counts.
        st.tuples(st.sampled_from(["max_tokens", "top_k"]), _whole.filter(lambda n: n < 2**63)),
        st.tuples(st.just("seed"), _whole),
        st.tuples(st.just("logprobs"), st.one_of(_whole, st.integers(18, 22))),
        st.tuples(st.just("stop"), st.lists(st.text(max_size=2), max_size=3)),
        st.tuples(st.just("ignore_eos"), st.booleans()),
    )
)
def test_the_engine_has_the_same_limits(parameter: tuple[str, Any]) -> None:
    name, value = parameter
    try:
        check_parameter(name, value)
        here = True
    except RowError:
        here = False
    params: dict[str, Any] = {name: tuple(value) if name == "stop" else value}
    try:
        SamplingParams(**params)
        there = True
    except RequestError:
        there = False
    assert here == there


def test_the_engine_has_the_same_parameters() -> None:
    ours = {"n"}  # the worker asks the engine for so many answers
    assert set(CHECKS) - ours == set(SamplingParams.__dataclass_fields__)


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
    "Seed": "seed",
    "stop_sequences": "stop",
    "stop_token_id": "stop_token_ids",
    "ignore_eso": "ignore_eos",
    "customId": "custom_id",
    "N": "n",
    "logprob": "logprobs",
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
        ("min_p", "min_p"),
        ("minP", "min_p"),
        ("guided_json", "guided_json"),
        ("presencePenalty", "presence_penalty"),
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
    check_neutral("min_p", "min_p", 0.0, {}, "")
    for name, value in (("min_p", False), ("stream", 0), ("repetition_penalty", True)):
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
