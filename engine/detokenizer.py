"""From tokens to text, and the search for stop strings in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from engine.errors import BrokenModel


def load_tokenizer(folder: Path) -> Tokenizer:
    """The fast tokenizer of a model folder.

    Raises:
        BrokenModel: there is no readable `tokenizer.json`.
    """
    path = folder / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise BrokenModel(
            f"{path}: no readable fast tokenizer ({error}); save the model's tokenizer with "
            "transformers' save_pretrained to get one"
        ) from error


def decode(tokenizer: Tokenizer, token_ids: Sequence[int]) -> str:
    """The text of the tokens without special ones; a torn UTF-8 sequence becomes U+FFFD."""
    text: str = tokenizer.decode(list(token_ids), skip_special_tokens=True)
    return text


class StopStringWatch:
    """Finds the first stop string in a text that grows by one token at a time.

    A stop string may begin and end anywhere in tokens, and characters may be spread over
    several tokens: text is looked at only when its bytes are complete.

    Attributes:
        text: what is decoded so far.
        cut: where the first stop string begins in `text`, or None.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._stop = stop
        self._overlap = max(map(len, stop)) - 1
        self.text = ""
        self.cut: int | None = None

    def feed(self, token_id: int) -> bool:
        """Add a token; true once a stop string is there."""
        piece = self._stream.step(self._tokenizer, token_id)
        if not piece:
            return False
        start = max(0, len(self.text) - self._overlap)
        self.text += piece
        found = [at for s in self._stop if (at := self.text.find(s, start)) >= 0]
        if found:
            self.cut = min(found)
        return bool(found)
