"""The bytes of single tokens: together they are the text, whatever the tokenizer is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models

from engine.detokenizer import decode, load_tokenizer
from engine.token_texts import TokenTexts
from tests.support.tiny_model import byte_tokenizer

PIECES = ["a", "b", "▁", "▁a", "▁▁", "é", "漢", "▁Hello", "a▁b", "##b"]


def byte_level() -> Tokenizer:
    made = byte_tokenizer().backend_tokenizer
    made.add_tokens(["<tool_call>", "two words", "漢字"])
    return made


def llama_2() -> Tokenizer:
    """Odd bytes are tokens of their own, spaces are marks, and the first one is cut."""
    vocab = {"<s>": 0, "</s>": 1} | {f"<0x{i:02X}>": 2 + i for i in range(256)}
    vocab |= {piece: len(vocab) + i for i, piece in enumerate(PIECES)}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    made.add_special_tokens(["<s>", "</s>"])
    made.add_tokens([AddedToken("<|tool|>", normalized=False)])
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return made


def words(decoder: object | None) -> Tokenizer:
    vocab = {"[CLS]": 0} | {piece: 1 + i for i, piece in enumerate(PIECES)}
    made = Tokenizer(models.WordLevel(vocab=vocab, unk_token="a"))
    made.add_special_tokens(["[CLS]"])
    if decoder is not None:
        made.decoder = decoder
    return made


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "byte level": byte_level,
    "llama 2": llama_2,
    "metaspace": lambda: words(decoders.Metaspace()),
    "metaspace, first kept": lambda: words(decoders.Metaspace(prepend_scheme="never")),
    "gemma": lambda: words(decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])),
    "word piece": lambda: words(decoders.WordPiece()),
    "regex": lambda: words(decoders.Sequence([decoders.Replace(Regex("b+"), "c")])),
    "none": lambda: words(None),
}


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    from engine.loading import resolve_model

    return load_tokenizer(resolve_model("smollm2-135m").path)


def check(tokenizer: Tokenizer, token_ids: list[int]) -> list[bytes]:
    pieces = TokenTexts(tokenizer).spread(token_ids)
    assert len(pieces) == len(token_ids)
    assert b"".join(pieces).decode(errors="replace") == decode(tokenizer, token_ids)
    return pieces


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_bytes_of_any_tokens_are_their_text(name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    size = tokenizer.get_vocab_size() + 3  # some that have no name

    @settings(deadline=None, max_examples=150)
    @given(st.lists(st.integers(0, size - 1) | st.integers(max(0, size - 16), size - 1)))
    def holds(token_ids: list[int]) -> None:
        check(tokenizer, token_ids)

    holds()


TEXT = "Café à Zürich 🎉👩🏽‍🚀, naïve — 漢字 and\n\ttabs  ünd Spaß! 🇨🇭"


def test_smollm2_takes_characters_apart(smollm2: Tokenizer) -> None:
    token_ids = smollm2.encode(TEXT).ids
    pieces = check(smollm2, token_ids)
    assert b"".join(pieces) == TEXT.encode()
    assert any(b"\xf0" in p and p.decode(errors="replace") != p.decode(errors="ignore")
               for p in pieces), "no emoji was split over tokens"  # fmt: skip
    texts = TokenTexts(smollm2)
    for token_id, piece in zip(token_ids, pieces, strict=True):
        assert texts.text(token_id) == piece.decode(errors="replace")


def test_smollm2_holds_for_any_text_and_any_cut(smollm2: Tokenizer) -> None:
    @settings(deadline=None, max_examples=100)
    @given(st.text(max_size=30), st.integers(0, 20), st.integers(0, 20))
    def holds(text: str, first: int, last: int) -> None:
        token_ids = smollm2.encode(text).ids
        check(smollm2, token_ids)
        check(smollm2, token_ids[first : len(token_ids) - last])

    holds()


def test_special_tokens_have_a_name_and_no_bytes(smollm2: Tokenizer) -> None:
    end = smollm2.token_to_id("<|im_end|>")
    a = smollm2.encode("a").ids
    assert check(smollm2, [end, *a, end]) == [b"", b"a", b""]
    assert TokenTexts(smollm2).text(end) == "<|im_end|>"


@pytest.mark.quick
def test_llama_2_spaces_and_bytes() -> None:
    tokenizer = llama_2()
    texts = TokenTexts(tokenizer)
    hello, a = tokenizer.token_to_id("▁Hello"), tokenizer.token_to_id("▁a")
    newline, end = tokenizer.token_to_id("<0x0A>"), tokenizer.token_to_id("</s>")
    tool = tokenizer.token_to_id("<|tool|>")
    assert check(tokenizer, [hello, a, newline, tool, end]) == [
        b"Hello", b" a", b"\n", b"<|tool|>", b""
    ]  # fmt: skip
    assert [texts.text(i) for i in (hello, a, newline, tool, end)] == [
        " Hello", " a", "\n", "<|tool|>", "</s>"
    ]  # fmt: skip
    party = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in "🎉".encode()]
    assert check(tokenizer, [hello, *party, a]) == [
        b"Hello", b"\xf0", b"\x9f", b"\x8e", b"\x89", b" a"
    ]  # fmt: skip
    assert [texts.text(i) for i in party] == ["\ufffd"] * 4
    torn = "\ufffd".encode()
    assert check(tokenizer, [hello, *party[:2], a]) == [b"Hello", torn, torn, b" a"]
    # The decoder leaves the special one out before it looks for characters.
    assert check(tokenizer, [*party[:2], end, *party[2:]]) == [
        b"\xf0", b"\x9f", b"", b"\x8e", b"\x89"
    ]  # fmt: skip


@pytest.mark.quick
def test_an_id_beyond_the_tokenizer_is_nothing() -> None:
    tokenizer = byte_level()
    beyond = tokenizer.get_vocab_size() + 100
    assert TokenTexts(tokenizer).text(beyond) == ""
    assert check(tokenizer, [beyond]) == [b""]


@pytest.mark.quick
def test_words_without_a_decoder_keep_the_spaces_between_them() -> None:
    tokenizer = words(None)
    ids = [tokenizer.token_to_id(t) for t in ("a", "b", "é", "[CLS]", "a")]
    assert check(tokenizer, ids) == [b"a", b" b", " é".encode(), b"", b" a"]
    tokenizer = words(decoders.WordPiece())
    ids = [tokenizer.token_to_id(t) for t in ("a", "##b", "b")]
    assert check(tokenizer, ids)[0] == b"a"
