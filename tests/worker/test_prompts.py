"""Chat templates and tokenizing without torch."""

import subprocess
import sys

import pytest

from engine.errors import RequestError
from tests.support.tiny_model import byte_tokenizer
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
