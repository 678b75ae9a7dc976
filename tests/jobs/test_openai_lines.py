"""Lines of OpenAI batch files become the rows that they wrap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.errors import InputError
from jobs.prompts import PromptRules
from jobs.rows import Row
from jobs.validation import RowValidator
from tests.support.submissions import prepare_lines

pytestmark = pytest.mark.quick

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "now"}}


def line(url: str = CHAT, method: Any = "POST", /, **body: Any) -> dict[str, Any]:
    return {"custom_id": "a", "method": method, "url": url, "body": body}


def chat(**body: Any) -> dict[str, Any]:
    return line(CHAT, messages=[USER], **body)


def completion(**body: Any) -> dict[str, Any]:
    return line(COMPLETION, **{"prompt": "hi", **body})


def validate(fields: dict[str, Any], **rules: Any) -> Row:
    return RowValidator(PromptRules(**rules)).validate(7, fields)


def answered(fields: dict[str, Any], **rules: Any) -> Row:
    row = validate(fields, **rules)
    assert row.error is None, row.error
    return row


def error(fields: dict[str, Any], **rules: Any) -> tuple[str, str | None, str]:
    row = validate(fields, **rules)
    assert row.error is not None
    assert row.prompt is row.messages is row.chat is row.params is None
    return row.error.code, row.error.field, row.error.message


def params(fields: dict[str, Any]) -> Any:
    row = answered(fields)
    return None if row.params is None else orjson.loads(row.params)


# Shaped like the examples in the documentation of OpenAI's Batch API and of `vllm run-batch`.
DOCUMENTED: list[tuple[dict[str, Any], list[tuple[str, str]], Any]] = [
    (
        {
            "custom_id": "request-1",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": "gpt-4o-mini",
                "messages": [
                    {"role": "system", "content": "You answer in one word."},
                    {"role": "user", "content": "Which river runs through Paris?"},
                ],
                "max_tokens": 1000,
            },
        },
        [("system", "You answer in one word."), ("user", "Which river runs through Paris?")],
        {"max_tokens": 1000},
    ),
    (
        {
            "custom_id": "request-2",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {
                "model": "gpt-4o-mini",
                "messages": [{"role": "developer", "content": "Be unhelpful."}, USER],
                "max_completion_tokens": 64,
                "temperature": 0.7,
                "stop": None,
                "seed": 7,
                "logprobs": True,
                "top_logprobs": 3,
                "n": 2,
                "stream": False,
                "user": "u-1",
                "metadata": {"topic": "rivers"},
            },
        },
        [("developer", "Be unhelpful."), ("user", "hi")],
        {"max_tokens": 64, "temperature": 0.7, "seed": 7, "n": 2, "logprobs": 3},
    ),
]


@pytest.mark.parametrize(("fields", "messages", "sampling"), DOCUMENTED)
def test_the_lines_of_the_documentation_work_unchanged(
    fields: dict[str, Any], messages: list[tuple[str, str]], sampling: Any
) -> None:
    row = answered(fields, models=("gpt-4o-mini",))
    assert row.custom_id == fields["custom_id"]
    assert [(m["role"], m["content"]) for m in orjson.loads(row.messages or b"")] == messages
    assert (None if row.params is None else orjson.loads(row.params)) == sampling
    assert row.prompt is row.extra is row.chat is None


def test_a_completion_is_a_raw_prompt() -> None:
    row = answered(completion(max_tokens=16, suffix=None, echo=False, logprobs=5, best_of=1))
    assert row == Row(7, custom_id="a", prompt=b"hi", params=b'{"max_tokens":16,"logprobs":5}')
    assert answered(completion(prompt=["hi"])).prompt == b"hi"
    assert answered(completion(add_special_tokens=True)).prompt == b"hi"


def test_everything_that_vllm_adds_and_we_have() -> None:
    row = answered(
        chat(
            top_k=40,
            ignore_eos=True,
            stop_token_ids=[7],
            stop="END",
            include_stop_str_in_output=True,
            min_p=0,
            repetition_penalty=1.1,
            presence_penalty=0.5,
            frequency_penalty=-1,
            logit_bias={"50256": -100, "7": 2.5},
            allowed_token_ids=[7, 8],
            bad_words="no",
            min_tokens=2,
            chat_template_kwargs={"enable_thinking": False},
            tools=[TOOL],
            tool_choice="auto",
        )
    )
    assert orjson.loads(row.params or b"") == {
        "top_k": 40,
        "ignore_eos": True,
        "stop_token_ids": [7],
        "stop": ["END"],
        "include_stop_str_in_output": True,
        "min_p": 0.0,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.5,
        "frequency_penalty": -1.0,
        "logit_bias": {"50256": -100.0, "7": 2.5},
        "allowed_token_ids": [7, 8],
        "bad_words": ["no"],
        "min_tokens": 2,
    }
    assert orjson.loads(row.chat or b"") == {
        "tools": [TOOL],
        "template_kwargs": {"enable_thinking": False},
    }
    assert params(chat(top_k=-1)) == {"top_k": 0}


def test_keys_beside_the_body_are_the_users_own() -> None:
    row = answered(chat() | {"id": 5, "meta": {"a": 1}, "model": "x"})
    assert orjson.loads(row.extra or b"") == {"id": 5, "meta": {"a": 1}, "model": "x"}
    row = validate(chat(stream=True) | {"id": 5})
    assert row.error is not None
    assert (row.custom_id, row.extra) == ("a", b'{"id":5}')


AT_REST = {
    "typical_p": 1.0,
    "no_repeat_ngram_size": 0,
    "mirostat": 0.0,
    "stream": False,
    "stream_options": None,
    "tool_choice": "none",
    "parallel_tool_calls": True,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "add_generation_prompt": True,
    "continue_final_message": False,
    "add_special_tokens": False,
    "truncate_prompt_tokens": None,
    "echo": False,
    "logprobs": False,
    "top_logprobs": 0,
    "modalities": ["text"],
    "priority": 0,
    "documents": None,
    "store": True,
    "service_tier": "auto",
    "safety_identifier": "u",
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "request_id": "r",
    "a key that is null": None,
}


def test_what_changes_nothing_is_taken_and_dropped() -> None:
    row = answered(chat(**AT_REST))
    assert row == answered(chat())
    assert answered(completion(suffix="", best_of=2, n=2)).params == b'{"n":2}'


BAD: list[tuple[dict[str, Any], str, str]] = [
    (chat() | {"method": "GET"}, "unsupported_method", "method"),
    (chat() | {"method": None}, "missing_field", "method"),
    (chat() | {"method": 1}, "wrong_type", "method"),
    (chat() | {"url": None}, "missing_field", "url"),
    (chat() | {"url": 1}, "wrong_type", "url"),
    (chat() | {"body": None}, "missing_field", "body"),
    (chat() | {"body": [1]}, "wrong_type", "body"),
    (chat() | {"body": "{"}, "invalid_json", "body"),
    ({"custom_id": "a", "method": "POST", "url": CHAT}, "missing_field", "body"),
    ({"url": CHAT, "body": {"messages": [USER]}}, "missing_field", "method"),
    ({"method": "POST", "body": {"messages": [USER]}}, "missing_field", "url"),
    (line(), "missing_prompt", "body.messages"),
    (line(COMPLETION), "missing_prompt", "body.prompt"),
    (line(messages=[USER], prompt="hi"), "unknown_field", "body.prompt"),
    (completion(messages=[USER]), "unknown_field", "body.messages"),
    (line(messages=[]), "empty_messages", "body.messages"),
    (line(messages=[USER, {"role": "usr"}]), "unknown_role", "body.messages[1].role"),
    (completion(prompt=""), "empty_prompt", "body.prompt"),
    (completion(prompt=5), "wrong_type", "body.prompt"),
    (completion(prompt=["a", "b"]), "unsupported_content", "body.prompt"),
    (completion(prompt=[1, 2]), "unsupported_content", "body.prompt"),
    (completion(prompt=[[1, 2]]), "unsupported_content", "body.prompt"),
    (completion(prompt=[]), "unsupported_content", "body.prompt"),
    (chat(stream=True), "unsupported_parameter", "body.stream"),
    (chat(typical_p=0.5), "unsupported_parameter", "body.typical_p"),
    (chat(frequency_penalty=2.5), "invalid_parameter", "body.frequency_penalty"),
    (chat(logit_bias={"x": 1}), "invalid_parameter", "body.logit_bias"),
    (chat(logit_bias={"7": 101}), "invalid_parameter", "body.logit_bias.7"),
    (
        chat(response_format={"type": "json_object", "schema": 5}),
        "wrong_type",
        "body.response_format.schema",
    ),
    (chat(guided_json={}), "unsupported_parameter", "body.guided_json"),
    (chat(tools=[TOOL], tool_choice="required"), "unsupported_parameter", "body.tool_choice"),
    (chat(modalities=["text", "audio"]), "unsupported_parameter", "body.modalities"),
    (chat(cache_salt="s"), "unsupported_parameter", "body.cache_salt"),
    (chat(add_special_tokens=True), "unsupported_parameter", "body.add_special_tokens"),
    (completion(add_special_tokens=False), "unsupported_parameter", "body.add_special_tokens"),
    (completion(best_of=3), "unsupported_parameter", "body.best_of"),
    (completion(suffix="end"), "unsupported_parameter", "body.suffix"),
    (completion(echo=True), "unsupported_parameter", "body.echo"),
    (completion(tools=[TOOL]), "not_a_chat", "body.tools"),
    (chat(temperature=-1), "invalid_parameter", "body.temperature"),
    (chat(n=0), "invalid_parameter", "body.n"),
    (chat(max_completion_tokens=0), "invalid_parameter", "body.max_completion_tokens"),
    (
        chat(max_completion_tokens=5, max_tokens=6),
        "invalid_parameter",
        "body.max_completion_tokens",
    ),
    (chat(logprobs=5), "wrong_type", "body.logprobs"),
    (chat(logprobs=True, top_logprobs=21), "invalid_parameter", "body.top_logprobs"),
    (chat(top_logprobs=3), "invalid_parameter", "body.top_logprobs"),
    (chat(logprobs=False, top_logprobs=3), "invalid_parameter", "body.top_logprobs"),
    (completion(logprobs=True), "wrong_type", "body.logprobs"),
    (completion(top_logprobs=3), "unsupported_parameter", "body.top_logprobs"),
    (chat(tools=[{}]), "missing_field", "body.tools[0].function"),
    (chat(chat_template_kwargs=[]), "wrong_type", "body.chat_template_kwargs"),
    (chat(temprature=1), "unknown_field", "body.temprature"),
    (chat(topic="x"), "unknown_field", "body.topic"),
    (chat(custom_id="x"), "unknown_field", "body.custom_id"),
    (chat(model=5), "wrong_type", "body.model"),
    (chat() | {"temperature": 1}, "unknown_field", "temperature"),
    (chat() | {"tools": [TOOL]}, "unknown_field", "tools"),
    (chat() | {"customId": 1}, "unknown_field", "customId"),
    (chat() | {"custom_id": ""}, "invalid_custom_id", "custom_id"),
]


@pytest.mark.parametrize(("fields", "code", "field"), BAD)
def test_a_bad_line_says_which_field_and_why(fields: dict[str, Any], code: str, field: str) -> None:
    found = error(fields)
    assert found[:2] == (code, field)
    assert 10 < len(found[2]) < 400


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        *((url, CHAT) for url in (CHAT, "v1/chat/completions", "/chat/completions", CHAT + "/")),
        ("https://api.openai.com/v1/chat/completions", CHAT),
        ("https://x.example/openai/deployments/d/chat/completions?api-version=1", CHAT),
        *(
            (url, COMPLETION)
            for url in (COMPLETION, "/completions", "http://h:8000/v1/completions")
        ),
        *((url, None) for url in ("/v1/embeddings", "/v1/responses", "/v1/score", "", "/", "//[")),
        ("https://h/" + "x" * 10**6, None),
        *((url, None) for url in ("/v2/chat/completions", "https://h/v1/models", "chat")),
    ],
)
def test_urls(url: str, endpoint: str | None) -> None:
    row = validate(line(url, messages=[USER]) if endpoint == CHAT else line(url, prompt="hi"))
    if endpoint is None:
        assert row.error is not None
        assert (row.error.code, row.error.field) == ("unsupported_url", "url")
        assert f"{CHAT} and {COMPLETION}" in row.error.message
    else:
        assert row.error is None
        assert (row.messages is not None) == (endpoint == CHAT)


@pytest.mark.parametrize("method", ["POST", "post", "Post"])
def test_methods(method: str) -> None:
    assert answered(line(CHAT, method, messages=[USER])).messages


def test_the_most_tokens_have_two_names() -> None:
    assert params(chat(max_completion_tokens=5)) == {"max_tokens": 5}
    assert params(chat(max_completion_tokens=5, max_tokens=5)) == {"max_tokens": 5}
    assert params(completion(max_completion_tokens=5)) == {"max_tokens": 5}


def test_log_probabilities() -> None:
    assert params(chat(logprobs=True)) == {"logprobs": 0}
    assert params(chat(logprobs=True, top_logprobs=20)) == {"logprobs": 20}
    assert params(chat(logprobs=False, top_logprobs=None)) is None
    assert params(completion(logprobs=0)) == {"logprobs": 0}


def test_hints_say_what_to_do() -> None:
    assert "did you mean temperature?" in error(chat(temprature=1))[2]
    assert "did you mean max_tokens?" in error(chat(max_new_tokens=1))[2]
    assert "did you mean max_completion_tokens?" in error(chat(max_completions_tokens=1))[2]
    assert "leave it out" in error(chat(topic=1))[2]
    assert "not streamed" in error(chat(stream=True))[2]
    assert "but for 0, which changes nothing" in error(chat(mirostat=1))[2]
    assert "write a line for each" in error(completion(prompt=["a", "b"]))[2]


def test_the_system_text_of_the_job_is_for_chats() -> None:
    messages = orjson.loads(answered(chat(), system="S").messages or b"")
    assert messages == [{"role": "system", "content": "S"}, USER]
    code, field, message = error(completion(), system="S")
    assert (code, field) == ("not_a_chat", "url")
    assert "--system is for chats" in message


def test_where_the_prompt_is_named_a_line_is_data() -> None:
    row = answered(chat() | {"q": "why?"}, prompt_column="q")
    assert row.prompt == b"why?"
    assert orjson.loads(row.extra or b"").keys() == {"method", "url", "body"}


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "p", "method": "GET", "url": "https://h/x", "body": "text"},
        {"prompt": "p", "method": "GET", "url": "https://h/x", "body": {"a": 1}},
        {"prompt": "p", "body": {"a": 1}},
    ],
)
def test_a_row_with_a_prompt_of_its_own_is_no_line(fields: dict[str, Any]) -> None:
    row = answered(fields)
    assert row.prompt == b"p"
    assert orjson.loads(row.extra or b"") == {k: v for k, v in fields.items() if k != "prompt"}


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "https://h/x", "body": "text"},
        {"url": "https://h/x", "method": "GET", "title": "t"},
        {"body": {"text": "t"}},
    ],
)
def test_a_scraped_page_is_no_line_either(fields: dict[str, Any]) -> None:
    code, field, message = error(fields)
    assert (code, field) == ("missing_prompt", "prompt")
    assert "--prompt-column" in message


def test_the_model_must_be_the_jobs() -> None:
    models = ("/models/llama", "./llama", "gpt-4o")
    for name in models:
        assert answered(chat(model=name), models=models).messages
    assert answered(chat(model=None), models=models).messages
    code, field, message = error(chat(model="gpt-4o-mini"), models=models)
    assert (code, field) == ("model_mismatch", "body.model")
    assert "'gpt-4o-mini', but the job's is '/models/llama'" in message
    assert "--served-model-name gpt-4o-mini answers it all the same" in message


def test_a_file_for_another_model_is_refused_with_the_remedy(tmp_path: Path) -> None:
    lines = [chat(model="gpt 4") | {"custom_id": f"{i}"} for i in range(3)]
    with pytest.raises(InputError, match=r"(?s)no row of .*--served-model-name 'gpt 4' answers"):
        prepare_lines(tmp_path, *lines)
    done = prepare_lines(tmp_path, *lines, served_model_names=["gpt 4"])
    assert done.job.plan.rejected == 0


def test_a_file_may_mix_lines_and_rows(tmp_path: Path) -> None:
    done = prepare_lines(
        tmp_path,
        chat(model="tiny") | {"custom_id": "1", "meta": 1},
        {"prompt": "plain", "n": 2},
        completion() | {"custom_id": "3"},
        line("/v1/embeddings", input="x") | {"custom_id": "4"},
    )
    rows = {row["row_index"]: row for row in done.rows()}
    assert rows[0]["messages"] == [USER]
    assert rows[0]["carried:input"] == '{"meta":1}'
    assert (rows[1]["prompt"], rows[1]["params"]) == ("plain", {"n": 2})
    assert (rows[2]["prompt"], rows[2]["custom_id"]) == ("hi", "3")
    assert done.errors() == [(4, "unsupported_url", "url")]
    assert [tally.code for tally in done.job.plan.rejected_errors] == ["unsupported_url"]


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b'{"method":"POST","url":"/v1/completions","body":{"prompt":"a","prompt":"b"}}',
         "body.prompt"),
        (b'{"method":"POST","url":"a","url":"b","body":{"prompt":"a"}}', "url"),
    ],
)  # fmt: skip
def test_a_key_that_is_there_twice_is_found_in_the_body_too(
    tmp_path: Path, raw: bytes, field: str
) -> None:
    done = prepare_lines(tmp_path, raw, {"prompt": "x"})
    assert done.errors() == [(1, "duplicate_key", field)]


def test_a_key_may_stand_beside_the_body_and_in_it(tmp_path: Path) -> None:
    done = prepare_lines(tmp_path, chat(model="tiny") | {"model": "mine", "role": "x"})
    assert done.rows()[0]["carried:input"] == '{"model":"mine","role":"x"}'


_text = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
_values: dict[str, st.SearchStrategy[Any]] = {
    "max_tokens": st.integers(0, 9),
    "temperature": st.sampled_from([0, 0.5, -1, None, "x"]),
    "top_p": st.sampled_from([0.5, 1, 0]),
    "top_k": st.integers(0, 3),
    "seed": st.integers(-1, 2**63 - 1),
    "stop": st.one_of(_text, st.lists(_text, max_size=3)),
    "stop_token_ids": st.lists(st.integers(-1, 9), max_size=2),
    "ignore_eos": st.booleans(),
    "n": st.integers(0, 3),
    "min_p": st.sampled_from([0, 0.1, 2]),
    "logit_bias": st.sampled_from([{}, {"5": 1}, {"5": 1.5}, {"05": 1}, {"5": 101}]),
    "bad_words": st.one_of(_text, st.lists(_text, max_size=3)),
    "typical_p": st.sampled_from([1, 0.1]),
    "stream": st.booleans(),
    "temprature": st.just(1),
}
_beside: dict[str, st.SearchStrategy[Any]] = {
    "tools": st.sampled_from([[], [TOOL], [{}], None]),
    "tool_choice": st.sampled_from(["auto", "none", "required"]),
    "chat_template_kwargs": st.sampled_from([{}, {"a": 1}, {"tools": 1}]),
    "reasoning_effort": st.sampled_from(["low", "so"]),
}
_messages = st.lists(
    st.sampled_from(
        [
            USER,
            {"role": "system", "content": [{"type": "text", "text": "S"}]},
            {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]},
            {"role": "usr", "content": "x"},
            {"role": "tool", "content": "x", "tool_call_id": "a"},
        ]
    ),
    max_size=4,
)


@pytest.mark.slow
@settings(deadline=None, max_examples=400)
@given(
    question=st.one_of(
        st.fixed_dictionaries({"messages": _messages}, optional=_values | _beside),
        st.fixed_dictionaries({"prompt": _text}, optional=_values | _beside),
    ),
    logprobs=st.none() | st.integers(0, 21),
    own=st.fixed_dictionaries({}, optional={"custom_id": st.just("i"), "meta": _text}),
)
def test_a_line_and_the_row_that_it_wraps_are_the_same(
    question: dict[str, Any], logprobs: int | None, own: dict[str, Any]
) -> None:
    is_chat = "messages" in question
    body = dict(question)
    if logprobs is not None:
        question = question | {"logprobs": logprobs}
        both = {"logprobs": True, "top_logprobs": logprobs}
        body |= both if is_chat else {"logprobs": logprobs}
    if "max_tokens" in body and "seed" in body:  # as good as any other condition
        body["max_completion_tokens"] = body.pop("max_tokens")
    url = CHAT if is_chat else COMPLETION
    row = validate(question | own)
    wrapped = validate(own | {"method": "POST", "url": url, "body": body})
    if row.error is None:
        assert wrapped.error is None
        for name in ("custom_id", "prompt", "messages", "chat", "extra"):
            assert getattr(wrapped, name) == getattr(row, name)
        assert _loaded(wrapped.params) == _loaded(row.params)  # whose keys may be in another order
    else:
        assert wrapped.error is not None
        assert (wrapped.custom_id, wrapped.extra) == (row.custom_id, row.extra)


def _loaded(json: bytes | None) -> Any:
    return None if json is None else orjson.loads(json)
