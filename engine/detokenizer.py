"""From tokens to text, and the search for stop strings in it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from tokenizers import Tokenizer

from engine.errors import BrokenModel

_TORN = "\ufffd"  # what is decoded of a part of a character


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


def decode(tokenizer: Tokenizer, token_ids: Iterable[int]) -> str:
    """The text of the tokens without special ones; a torn UTF-8 sequence becomes U+FFFD."""
    text: str = tokenizer.decode(list(token_ids), skip_special_tokens=True)
    return text


@lru_cache(maxsize=4)  # an engine has one tokenizer, and asks for each request
def special_tokens(tokenizer: Tokenizer) -> Mapping[int, str]:
    """The names of the special tokens, which are left out of a text, by their ids."""
    added = tokenizer.get_added_tokens_decoder()
    return MappingProxyType({i: token.content for i, token in added.items() if token.special})


class StopStringWatch:
    """Finds the first stop string in a text that grows by one token at a time.

    A stop string may begin and end anywhere in tokens, and a character may be spread over
    several. Each token costs a look at the last few; only where a stop string seems to be there
    is everything decoded, so that what counts is the text as `decode` gives it, whatever the
    tokenizer's decoder does at its ends.

    Args:
        stop: at least one; of those that begin at the same place the shortest counts.
        include: keep the stop string in the text.
        min_tokens: stop strings do not count that were complete with so many tokens.

    Attributes:
        text: the text before the first stop string, or with it; None while there is none.
    """

    _BYTES_OF_A_CHARACTER = 4  # each may be a token
    _MARGIN = 16

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: Sequence[str],
        *,
        include: bool = False,
        min_tokens: int = 0,
    ) -> None:
        self._tokenizer = tokenizer
        self._stop = stop
        self._include = include
        self._min_tokens = min_tokens
        self._special = special_tokens(tokenizer)
        window = self._BYTES_OF_A_CHARACTER * max(map(len, stop)) + self._MARGIN
        # Without special tokens, which are no text: any number of them may be in a stop string.
        self._tail: deque[int] = deque(maxlen=window)
        self._seen = 0
        self._ignored: int | None = None  # length of the text in which no stop string counts
        self.text: str | None = None

    def found(self, token_ids: Sequence[int]) -> bool:
        """Whether a stop string is there, now that the last token has been added.

        Args:
            token_ids: those of the call before, and one or more.
        """
        self._tail.extend(t for t in token_ids[self._seen :] if t not in self._special)
        self._seen = len(token_ids)
        if len(token_ids) <= self._min_tokens:
            return False
        if self._seems_found():
            text = decode(self._tokenizer, token_ids)
            ignored = self._ignored_length(token_ids)
            # Found from where it would end with the first character that counts.
            places = [(text.find(s, max(0, ignored + 1 - len(s))), len(s)) for s in self._stop]
            begin, length = min((p for p in places if p[0] >= 0), default=(-1, 0))
            if begin >= 0:
                self.text = text[: begin + length if self._include else begin]
        return self.text is not None

    def _seems_found(self) -> bool:
        """Whether one is in the last tokens, without those of a character that was begun before.

        A byte-level decoder makes U+FFFD of these alone, and one of the byte-fallback kind of all
        tokens of bytes in a row.
        """
        for torn in range(self._BYTES_OF_A_CHARACTER):
            tail = decode(self._tokenizer, islice(self._tail, torn, None))
            if any(s in tail for s in self._stop):
                return True
            if not tail.startswith(_TORN):
                break
        return False

    def _ignored_length(self, token_ids: Sequence[int]) -> int:
        if self._ignored is None:
            # A character that the next tokens complete is not there yet; those before it are.
            shortest = max(0, self._min_tokens - self._BYTES_OF_A_CHARACTER + 1)
            texts = [
                decode(self._tokenizer, token_ids[:count])
                for count in range(shortest, self._min_tokens + 1)
            ]
            self._ignored = max(len(text.rstrip(_TORN)) for text in texts)
        return self._ignored
