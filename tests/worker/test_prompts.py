"""Chat templates and tokenizing without torch."""

import inspect
import json
import subprocess
import sys
import threading

import pytest

from engine.errors import RequestError
from jobs.tools import RESERVED
from tests.support.tiny_model import byte_tokenizer
from worker.errors import ModelUnavailable
from worker.prompts import PromptEncoder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    byte_tokenizer().save_pretrained(path)
    return str(path)


def test_chats_get_no_second_bos(folder):
    encoder = PromptEncoder(folder)
    text = encoder.render([{"role": "user", "content": "hi"}])
    (ids,) = encoder.encode_chats([text])
    bos = byte_tokenizer().bos_token_id
    assert text.startswith("<|bos|>")
    assert ids.count(bos) == 1
    assert ids[0] == bos


def test_a_prompt_that_begins_with_bos_has_it_once(tmp_path):
    from tokenizers.processors import TemplateProcessing

    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", tokenizer.bos_token_id)]
    )
    tokenizer.save_pretrained(tmp_path)
    encoder = PromptEncoder(str(tmp_path))
    bare, doubled = encoder.encode_prompts(["hi", "<|bos|>hi"])
    assert bare == doubled
    assert bare.count(tokenizer.bos_token_id) == 1


def test_no_texts_are_no_call(folder):
    assert PromptEncoder(folder).encode_chats([]) == []


def test_a_template_that_refuses_is_the_rows_error(tmp_path):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(RequestError, match="roles must alternate") as caught:
        PromptEncoder(str(tmp_path)).render([{"role": "user", "content": "hi"}])
    assert caught.value.code == "chat_template_refused"


def test_a_model_without_a_template_says_so(tmp_path):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(RequestError) as caught:
        PromptEncoder(str(tmp_path)).render([{"role": "user", "content": "hi"}])
    assert caught.value.code == "no_chat_template"


USER = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]


@pytest.fixture
def with_template(tmp_path):
    def make(template):
        tokenizer = byte_tokenizer()
        tokenizer.chat_template = template
        tokenizer.save_pretrained(tmp_path)
        return PromptEncoder(str(tmp_path))

    return make


def test_what_a_template_raises_is_not_repeated_at_any_length(with_template):
    encoder = with_template("{{ raise_exception(messages[0]['content']) }}")
    with pytest.raises(RequestError) as caught:
        encoder.render([{"role": "user", "content": "x" * 100_000}])
    assert len(str(caught.value)) < 1000


WRONG = [5, -1.5, True, "x", None, [], [1], {}, {"a": 1}]
KEYS = ["added_tokens_decoder", "additional_special_tokens", "auto_map", "bos_token",
        "chat_template", "clean_up_tokenization_spaces", "extra_special_tokens",
        "model_input_names", "model_max_length", "pad_token", "padding_side",
        "tokenizer_class"]  # fmt: skip


@pytest.fixture
def with_config(tmp_path):
    """Loads a tokenizer whose tokenizer_config.json holds that text."""
    byte_tokenizer().save_pretrained(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()  # it would win over the one of the file

    def make(text):
        (tmp_path / "tokenizer_config.json").write_text(text)
        return PromptEncoder(str(tmp_path))

    make.values = json.loads((tmp_path / "tokenizer_config.json").read_text())
    return make


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "5", '"x"'])
def test_a_tokenizer_config_that_is_no_object_is_a_model_that_cannot_be_served(with_config, text):
    with pytest.raises(ModelUnavailable, match=r"tokenizer cannot be loaded: .*; mend ") as caught:
        with_config(text)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("key", KEYS)
def test_a_wrong_type_in_the_tokenizer_config_never_ends_in_a_traceback(with_config, key):
    """Either it changes nothing, or the model is refused: rows do not find out."""
    refused = []
    for value in WRONG:
        try:
            encoder = with_config(json.dumps(with_config.values | {key: value}))
        except ModelUnavailable as error:
            refused.append(str(error))
        else:
            assert [len(ids) for ids in encoder.encode_prompts(["hi", "you"])] == [2, 3]
            if not (key == "chat_template" and value == "x"):
                with pytest.raises(RequestError, match="no chat template"):
                    encoder.render(USER)
    assert all("; mend " in sentence for sentence in refused)
    assert refused or key == "clean_up_tokenization_spaces"


@pytest.mark.parametrize(
    "template",
    ["{% for x in %}", "{% if true %}", "{{ messages | no_such_filter }}", "{{ 'open }}",
     {"default": "{{ messages }}", "tool_use": "{% endfor %}"}],
)  # fmt: skip
def test_a_template_that_is_none_is_a_model_that_cannot_be_served(with_template, template):
    with pytest.raises(ModelUnavailable, match=r"chat template cannot be read: .*; mend or remove"):
        with_template(template)


@pytest.mark.parametrize("template", [5, True, {"a": 1}, [{"name": "default", "template": 5}]])
def test_a_template_that_is_no_text_is_a_model_that_cannot_be_served(with_config, template):
    with pytest.raises(ModelUnavailable, match="mend"):
        with_config(json.dumps(with_config.values | {"chat_template": template}))


def test_tools_reach_the_template(with_template):
    encoder = with_template("{% if tools %}{{ tools | tojson }}{% endif %}{{ messages | length }}")
    assert json.loads(encoder.render(USER, TOOLS)[:-1]) == TOOLS
    assert encoder.render(USER) == encoder.render(USER, []) == "1"


def test_tools_that_the_model_would_not_see_are_the_rows_error(with_template):
    encoder = with_template("{{ messages[0]['content'] }}")
    assert encoder.render(USER, []) == "hi"
    with pytest.raises(RequestError, match="no place for tools") as caught:
        encoder.render(USER, TOOLS)
    assert (caught.value.code, caught.value.field) == ("tools_not_supported", "tools")


def test_of_several_templates_the_one_for_tools_is_taken(with_template):
    encoder = with_template({"default": "plain", "tool_use": "with {{ tools | length }}"})
    assert encoder.render(USER) == "plain"
    assert encoder.render(USER, TOOLS) == "with 1"


def test_several_templates_without_a_default_are_the_rows_error(with_template):
    encoder = with_template({"rag": "one", "tool_use": "{{ tools | length }}"})
    assert encoder.render(USER, TOOLS) == "1"
    with pytest.raises(RequestError, match="no default") as caught:
        encoder.render(USER)
    assert caught.value.code == "chat_template_refused"


def test_variables_reach_the_template_and_unknown_ones_change_nothing(with_template):
    encoder = with_template("{{ 'deep' if enable_thinking else 'quick' }}{{ documents }}")
    assert encoder.render(USER, None, {"enable_thinking": True, "colour": "red"}) == "deepNone"
    assert "title" in encoder.render(USER, None, {"documents": [{"title": "a", "text": "b"}]})


def test_a_template_cannot_be_made_to_run_away(with_template):
    encoder = with_template("{% for i in range(count) %}x{% endfor %}{{ text | tojson | length }}")
    deep = []
    for _ in range(5000):
        deep = [deep]
    for variables in ({"count": 10**9, "text": ""}, {"count": 1, "text": deep}):
        with pytest.raises(RequestError) as caught:
            encoder.render(USER, None, variables)
        assert (caught.value.code, caught.value.field) == ("template_error", "messages")


def test_half_a_surrogate_pair_in_a_chat_is_the_rows_error(with_template):
    """The tokenizer would refuse it, and with it all rows that it is tokenized with."""
    encoder = with_template(
        "{{ messages[0]['content'] }}{% if messages | length > 1 %}{{ '\\ud800' }}{% endif %}"
    )
    assert encoder.encode_chats([encoder.render(USER)])
    with pytest.raises(RequestError, match="surrogates not allowed") as caught:
        encoder.render([*USER, *USER])
    assert caught.value.code == "chat_template_refused"


def test_a_row_cannot_set_how_the_template_is_applied(folder):
    """`jobs` refuses these names at submit, and cannot ask transformers for them."""
    from transformers import PreTrainedTokenizerBase

    arguments = inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters
    assert arguments.keys() - {"documents", "kwargs"} <= RESERVED
    with pytest.raises(RequestError):
        PromptEncoder(folder).render(USER, None, {"tokenize": True})


def test_a_text_that_ends_the_library_of_the_tokenizer_is_refused(folder, monkeypatch):
    class PanicException(BaseException):
        """As the one of tokenizers, which no `except Exception` catches."""

    def panic(*arguments, **options):
        raise PanicException("retry-limit-in-match over")

    encoder = PromptEncoder(folder)
    monkeypatch.setattr(encoder, "_tokenizer", panic)
    with pytest.raises(RequestError, match="PanicException: retry-limit") as refused:
        encoder.encode_chats(["a"])
    assert refused.value.code == "tokenizer_error"


def test_an_interrupt_is_no_refusal(folder, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    encoder = PromptEncoder(folder)
    monkeypatch.setattr(encoder, "_tokenizer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        encoder.encode_chats(["a"])


def test_other_threads_run_while_a_long_text_is_tokenized(folder):
    """Heartbeats, above all: the tokenizer holds no lock of the interpreter."""
    encoder = PromptEncoder(folder)
    text = "a long row, and all of it is one text. " * 50_000
    tokenizing, ticks = threading.Event(), 0
    thread = threading.Thread(
        target=lambda: (encoder._tokenizer.backend_tokenizer.encode_batch([text]), tokenizing.set())
    )
    thread.start()
    while not tokenizing.wait(0.005):
        ticks += 1
    thread.join()
    assert ticks > 5


def test_the_digest_covers_the_template(folder, tmp_path):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    tokenizer.save_pretrained(tmp_path)
    assert PromptEncoder(folder).digest == PromptEncoder(folder).digest
    assert PromptEncoder(folder).digest != PromptEncoder(str(tmp_path)).digest


def test_torch_stays_unloaded_and_findable(folder):
    code = (
        "import sys, importlib.util\n"
        "from worker.prompts import PromptEncoder\n"
        f"PromptEncoder({folder!r}).render([dict(role='user', content='x')])\n"
        "assert 'torch' not in sys.modules\n"
        "assert importlib.util.find_spec('torch')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
