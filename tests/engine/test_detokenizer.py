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


@pytest.fixture(scope="module")
def byte_fallback():
    """A tokenizer of the Llama 2 kind: odd bytes are tokens of their own, and a space is cut."""
    from tokenizers import Tokenizer, decoders, models

    pieces = ["a", "b", "ab", "▁", "▁a", "é", "漢"]
    vocab = {f"<0x{i:02X}>": i for i in range(256)}
    vocab |= {piece: 256 + i for i, piece in enumerate(pieces)}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return made


def check(tokenizer, token_ids, stop, *, include=False, min_tokens=0):
    """The watch agrees, token by token, with a search in the whole decoded text."""
    watch = StopStringWatch(tokenizer, stop, include=include, min_tokens=min_tokens)
    ignored = max(
        len(decode(tokenizer, token_ids[:count]).rstrip("\ufffd"))
        for count in range(max(0, min_tokens - 3), min_tokens + 1)
    )
    for count in range(1, len(token_ids) + 1):
        text = decode(tokenizer, token_ids[:count])
        places = [
            (start, len(s))
            for s in stop
            for start in range(len(text) - len(s) + 1)
            if text.startswith(s, start) and start + len(s) > ignored
        ]
        expected = min(places, default=None) if count > min_tokens else None
        assert watch.found(token_ids[:count]) == (expected is not None)
        if expected is not None:
            start, length = expected
            assert watch.text == text[: start + length if include else start]
            return
    assert watch.text is None


stops = st.lists(
    st.text(st.sampled_from("ab é漢🎉"), min_size=1, max_size=4), min_size=1, max_size=3
)


@settings(deadline=None)
@given(
    text=st.text(st.sampled_from("ab é漢🎉\n"), max_size=40),
    stop=stops,
    include=st.booleans(),
    min_tokens=st.integers(0, 20),
)
def test_the_first_stop_string_is_found_and_cut(tokenizer, text, stop, include, min_tokens):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    check(tokenizer, ids, stop, include=include, min_tokens=min_tokens)


@settings(deadline=None)
@given(token_ids=st.lists(st.integers(0, 255), max_size=60), stop=stops)
def test_bytes_in_any_order(tokenizer, token_ids, stop):
    check(tokenizer, token_ids, stop)


@settings(deadline=None)
@given(token_ids=st.lists(st.integers(0, 262) | st.integers(256, 262), max_size=60), stop=stops)
def test_a_tokenizer_with_byte_fallback(byte_fallback, token_ids, stop):
    """Its stream decoder raises where bytes are no character; the engine must not die of it."""
    check(byte_fallback, token_ids, stop)


@settings(deadline=None)
@given(
    pieces=st.lists(
        st.tuples(st.text(st.sampled_from("ab é漢🎉"), max_size=3), st.integers(0, 60)), max_size=6
    ),
    stop=stops,
    min_tokens=st.integers(0, 80),
)
def test_any_number_of_special_tokens_may_be_in_it(tokenizer, pieces, stop, min_tokens):
    """Of a row that ignores the end of the text; they may tear a character, too."""
    eos = tokenizer.token_to_id("<|eos|>")
    ids = []
    for text, times in pieces:
        of_text = tokenizer.encode(text, add_special_tokens=False).ids
        ids += [*of_text[:-1], *[eos] * times, *of_text[-1:]]
    check(tokenizer, ids, stop, min_tokens=min_tokens)


def test_a_stop_string_around_many_special_tokens(tokenizer):
    eos = tokenizer.token_to_id("<|eos|>")
    a, b = tokenizer.encode("ab", add_special_tokens=False).ids
    check(tokenizer, [b, a, *[eos] * 500, b], ("ab",))


def test_half_a_character_is_no_text_yet(tokenizer):
    watch = StopStringWatch(tokenizer, ("é",))
    ids = tokenizer.encode("é", add_special_tokens=False).ids
    assert not watch.found(ids[:1])
    assert watch.found(ids)
    assert watch.text == ""


def test_a_character_that_is_whole_after_the_least_tokens_counts(tokenizer):
    ids = tokenizer.encode("é", add_special_tokens=False).ids
    watch = StopStringWatch(tokenizer, ("é",), include=True, min_tokens=1)
    assert watch.found(ids)
    assert watch.text == "é"
    late = StopStringWatch(tokenizer, ("é",), min_tokens=2)
    assert not late.found(ids)
    assert not late.found([*ids, ids[0]])
    assert late.found([*ids, *ids])
    assert late.text == "é"


@pytest.mark.parametrize("before", [0, 5, 6, 7, 20])
def test_a_stop_string_in_a_long_row_of_bytes(byte_fallback, before):
    """Burmese, of which each byte is a token; no window of the last ones begins with a letter."""
    letters = "က" * before
    ids = byte_fallback.encode(letters + "။" + "က" * 8).ids
    watch = StopStringWatch(byte_fallback, ["။"])
    end = 3 * (before + 1)
    assert [count for count in range(1, end + 1) if watch.found(ids[:count])] == [end]
    assert watch.text == letters


def test_a_stop_string_among_the_least_tokens_does_not_count_before_half_a_letter(byte_fallback):
    ids = byte_fallback.encode("။ကက။").ids
    watch = StopStringWatch(byte_fallback, ["။"], min_tokens=4)  # "။", and a third of a letter
    assert [count for count in range(1, 13) if watch.found(ids[:count])] == [12]
    assert watch.text == "။ကက"


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
