"""From tokens to text, and the search for stop strings in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

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

    A stop string may begin and end anywhere in tokens, and a character may be spread over
    several. Each token costs a look at the last few; only where a stop string seems to be there
    is everything decoded, so that what counts is the text as `decode` gives it, whatever the
    tokenizer's decoder does at its ends.

    Attributes:
        text: the text before the first stop string, or None while there is none.
    """

    # A character is at most 4 tokens of one byte; special tokens between them are skipped.
    _BYTES_OF_A_CHARACTER = 4
    _MARGIN = 16

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._stop = stop
        self._window = self._BYTES_OF_A_CHARACTER * max(map(len, stop)) + self._MARGIN
        self.text: str | None = None

    def found(self, token_ids: Sequence[int]) -> bool:
        """Whether a stop string is there, now that the last token has been added."""
        tail = decode(self._tokenizer, token_ids[-self._window :])
        if any(s in tail for s in self._stop):
            text = decode(self._tokenizer, token_ids)
            starts = [at for s in self._stop if (at := text.find(s)) >= 0]
            if starts:
                self.text = text[: min(starts)]
        return self.text is not None
