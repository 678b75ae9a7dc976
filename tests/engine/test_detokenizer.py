"""Stop strings over token and UTF-8 boundaries; text equal to the tokenizer's own."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.detokenizer import StopStringWatch, decode, load_tokenizer
from engine.errors import BrokenModel
from tests.support.tiny_model import byte_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return byte_tokenizer().backend_tokenizer


def feed(tokenizer, text, stop):
    """Feed the bytes of a text one by one, as a byte-level model would; what was seen, and cut."""
    watch = StopStringWatch(tokenizer, stop)
    for token_id in tokenizer.encode(text, add_special_tokens=False).ids:
        if watch.feed(token_id):
            break
    return watch


@settings(deadline=None)
@given(
    text=st.text(st.sampled_from("ab é漢🎉\n"), max_size=40),
    stop=st.lists(st.text(st.sampled_from("ab é漢🎉"), min_size=1, max_size=4), min_size=1),
)
def test_the_first_stop_string_is_found_and_cut(tokenizer, text, stop):
    watch = feed(tokenizer, text, stop)
    ends = [text.find(s) + len(s) for s in stop if s in text]
    if not ends:
        assert watch.cut is None
        return
    # It is found with the token that completes it, and cut at the earliest one complete by then.
    seen = text[: min(ends)]
    assert watch.text == seen
    assert watch.cut == min(seen.find(s) for s in stop if s in seen)


def test_half_a_character_is_no_text_yet(tokenizer):
    watch = StopStringWatch(tokenizer, ("x",))
    first, second = tokenizer.encode("é", add_special_tokens=False).ids
    watch.feed(first)
    assert watch.text == ""
    watch.feed(second)
    assert watch.text == "é"


def test_special_tokens_are_not_in_the_text(tokenizer):
    ids = tokenizer.encode("a", add_special_tokens=False).ids
    eos = tokenizer.token_to_id("<|eos|>")
    assert decode(tokenizer, [*ids, eos]) == "a"


def test_a_torn_character_at_the_end_is_marked(tokenizer):
    ids = tokenizer.encode("aé", add_special_tokens=False).ids
    assert decode(tokenizer, ids[:-1]) == "a\ufffd"


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    with pytest.raises(BrokenModel, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)
