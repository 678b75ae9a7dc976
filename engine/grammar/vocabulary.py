"""A model's tokens as llguidance sees them: by the bytes that they add to a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import llguidance

from engine.detokenizer import decode, special_tokens
from engine.grammar.matcher import Bits, bitmask
from engine.token_texts import TokenTexts

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens of a model.

    Attributes:
        tokens: with one more, whose id is the size of the vocabulary: the end of the text.
        not_first: tokens that a text cannot begin with, as decoding would change them; None
            where there is none.
    """

    tokens: llguidance.LLTokenizer
    not_first: Bits | None

    @classmethod
    def of(cls, tokenizer: Tokenizer, vocab_size: int) -> Vocabulary:
        """The vocabulary of a model.

        Args:
            vocab_size: of the model, which may have more rows than its tokenizer has tokens.
        """
        tokens = _Tokens(tokenizer, vocab_size)
        spaced = [i for i, data in enumerate(tokens.tokens) if data.startswith(b" ")]
        # Decoders of SentencePiece cut the space at the start of a text.
        cut = bool(spaced) and not decode(tokenizer, spaced[:1]).startswith(" ")
        return cls(
            llguidance.LLTokenizer(cast("llguidance.TokenizerWrapper", tokens)),
            bitmask(spaced, vocab_size) if cut else None,
        )


class _Tokens:
    """What `llguidance.LLTokenizer` asks of a tokenizer.

    Attributes:
        tokens: bytes of each token id; of special tokens their names; empty for ids without one.
        eos_token_id: None, so that an id after the last one stands for the end of a text.
    """

    is_tokenizer_wrapper = True
    bos_token_id = eos_token_id = None

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        texts = TokenTexts(tokenizer)
        special = {i: name for i, name in special_tokens(tokenizer).items() if i < vocab_size}
        self._tokenizer = tokenizer
        self.tokens = [texts.bytes_of(token_id) for token_id in range(vocab_size)]
        for token_id, name in special.items():
            self.tokens[token_id] = name.encode()
        self.special_token_ids = list(special)

    def __call__(self, text: bytes | str) -> list[int]:
        text = text.decode(errors="replace") if isinstance(text, bytes) else text
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids
