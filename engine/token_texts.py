"""What each token looks like by itself, and which bytes of a text it stands for.

A tokenizer decodes a whole sequence: bytes of several tokens make one character, a space at the
start is cut, special tokens are left out. Log probabilities speak of single tokens, so here a
text is taken apart again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from engine.batch import SampledLogprobs
from engine.detokenizer import decode, special_tokens
from engine.request import TokenLogprob, TopLogprob

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_TORN = "\ufffd".encode()


class TokenTexts:
    """The tokens of one tokenizer.

    Byte-level tokenizers (GPT-2, Llama 3, Qwen) and those of SentencePiece with or without byte
    fallback (Llama 2, Mistral) are known by the bytes of each token; of any other the text is
    shared out among the tokens as far as they can be found in it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._special = special_tokens(tokenizer)
        steps = _decoder_steps(tokenizer)
        kinds = {step["type"] for step in steps}
        self._byte_level = "ByteLevel" in kinds
        self._byte_fallback = "ByteFallback" in kinds
        self._replacements = [pair for step in steps if (pair := _replacement(step))]
        self._known: dict[int, tuple[bytes, str]] = {}  # filled as tokens come up

    def describe(
        self, token_ids: Sequence[int], logprobs: Sequence[SampledLogprobs]
    ) -> tuple[TokenLogprob, ...]:
        """The log probabilities of a sequence's tokens, with what the tokens look like."""
        return self._describe(token_ids, self.spread(token_ids), logprobs)

    def describe_prompt(
        self, token_ids: Sequence[int], logprobs: Iterable[SampledLogprobs]
    ) -> tuple[TokenLogprob, ...]:
        """The same of a prompt's tokens from the second on."""
        return self._describe(token_ids[1:], self.spread(token_ids)[1:], logprobs)

    def _describe(
        self, token_ids: Sequence[int], pieces: Sequence[bytes], logprobs: Iterable[SampledLogprobs]
    ) -> tuple[TokenLogprob, ...]:
        return tuple(
            TokenLogprob(
                token_id,
                self.text(token_id),
                piece,
                found.values[0],
                tuple(
                    TopLogprob(top_id, self.text(top_id), value)
                    for top_id, value in zip(found.top_ids, found.values[1:], strict=True)
                ),
            )
            for token_id, piece, found in zip(token_ids, pieces, logprobs, strict=True)
        )

    def text(self, token_id: int) -> str:
        """The token by itself: special ones by name, bytes that are no character as U+FFFD."""
        return self._token(token_id)[1]

    def bytes_of(self, token_id: int) -> bytes:
        """What the token is within a text; nothing for special ones and for ids without a token."""
        return self._token(token_id)[0]

    def spread(self, token_ids: Sequence[int]) -> list[bytes]:
        """The bytes that each token adds to the text of the sequence.

        Together they are the text that `decode` gives, where a byte-level tokenizer's torn
        characters are still their bytes; a byte-fallback tokenizer's are U+FFFD, one a byte, as
        its decoder has it.
        """
        pieces = [self._token(token_id)[0] for token_id in token_ids]
        if self._byte_fallback:
            self._mark_torn(token_ids, pieces)
        text = decode(self._tokenizer, token_ids)
        whole = b"".join(pieces).decode(errors="replace")
        cut = len(whole) - len(text)
        if cut > 0 and whole == " " * cut + text:
            _drop(pieces, cut)
        elif whole != text:
            pieces = _share_out(pieces, text.encode())
        return pieces

    def _token(self, token_id: int) -> tuple[bytes, str]:
        """What the token is within a text, and by itself."""
        known = self._known.get(token_id)
        if known is None:
            if token_id in self._special:
                known = b"", self._special[token_id]
            else:
                # A model may have more rows than its tokenizer has tokens.
                data = self._bytes_of_name(self._tokenizer.id_to_token(token_id) or "")
                known = data, data.decode(errors="replace")
            self._known[token_id] = known
        return known

    def _bytes_of_name(self, name: str) -> bytes:
        if self._byte_level:
            try:
                return bytes(_BYTE_OF_SYMBOL[symbol] for symbol in name)
            except KeyError:  # an added token that is written as it is
                return name.encode()
        for old, new in self._replacements:
            name = name.replace(old, new)
        byte = _BYTE_TOKEN.fullmatch(name) if self._byte_fallback else None
        return bytes.fromhex(byte[1]) if byte else name.encode()

    def _mark_torn(self, token_ids: Sequence[int], pieces: list[bytes]) -> None:
        """Runs of byte tokens that are no UTF-8 become U+FFFD, a token each."""
        run: list[int] = []
        for index, piece in enumerate([*pieces, b"end"]):
            if len(piece) == 1 and self._is_byte_token(token_ids[index]):
                run.append(index)
            elif piece:  # what adds nothing is not seen by the decoder
                if not _is_utf8(b"".join(pieces[i] for i in run)):
                    for i in run:
                        pieces[i] = _TORN
                run.clear()

    def _is_byte_token(self, token_id: int) -> bool:
        return _BYTE_TOKEN.fullmatch(self._tokenizer.id_to_token(token_id) or "") is not None


def _decoder_steps(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """The decoder as tokenizer.json describes it; its state is that JSON."""
    if tokenizer.decoder is None:
        return []
    decoder = json.loads(tokenizer.decoder.__getstate__())
    steps: list[dict[str, Any]] = decoder.get("decoders", [decoder])
    return steps


def _replacement(step: dict[str, Any]) -> tuple[str, str] | None:
    """What the step replaces in each token by what; None if it does not."""
    if step["type"] == "Metaspace":
        return step["replacement"], " "
    if step["type"] == "Replace" and "String" in step["pattern"]:
        return step["pattern"]["String"], step["content"]
    return None


def _symbols() -> dict[str, int]:
    """The characters that stand for bytes in a byte-level vocabulary (that of GPT-2)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


_BYTE_OF_SYMBOL = _symbols()


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _drop(pieces: list[bytes], count: int) -> None:
    """Take the first bytes away: spaces at the start of a text, which the decoder cuts."""
    for index, piece in enumerate(pieces):
        pieces[index] = piece[count:]
        count -= min(count, len(piece))


def _share_out(pieces: Sequence[bytes], data: bytes) -> list[bytes]:
    """Give each piece the bytes up to its own end in the text, as far as it can be found there.

    For decoders that join tokens by rules that we do not know, such as spaces between words.
    """
    shares: list[bytes] = []
    at = unseen = 0
    for piece in pieces:
        word = piece.strip()
        # Before it there may be a space, and what pieces that were not found have become.
        start = data.find(word, at, at + unseen + len(word) + 1) if word else -1
        end = start + len(word) if start >= 0 else at
        unseen = 0 if start >= 0 else unseen + len(piece) + 1
        shares.append(data[at:end])
        at = end
    if shares:
        shares[-1] += data[at:]
    return shares
