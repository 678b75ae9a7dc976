"""Following one answer through its grammar."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.grammar.refusal import code_of

if TYPE_CHECKING:
    import llguidance

    from engine.grammar.compiler import CompiledGrammar

Bits = npt.NDArray[np.int32]
# Most time on a processor for one token: the whole batch waits for it. Usual is a ten-thousandth
# of it; the library's own limits stop an ambiguous grammar only after several seconds.
TOKEN_CPU_SECONDS = 1.0


def mask_words(vocab_size: int) -> int:
    """32-bit words of a mask: a bit for each token, and one for the end of the text."""
    return vocab_size // 32 + 1


class EndTokens:
    """The tokens that end a text and add nothing to it.

    Args:
        token_ids: of the model's vocabulary.
        vocab_size: of the model; also the id by which grammars know the end of the text.

    Attributes:
        bits: [`mask_words(vocab_size)`], a bit for each of the tokens.
        word, bit: where a mask says that the text may end.
    """

    __slots__ = ("bit", "bits", "token_ids", "word")

    def __init__(self, token_ids: Iterable[int], vocab_size: int) -> None:
        self.token_ids = frozenset(token_ids)
        self.bits = bitmask(self.token_ids, vocab_size)
        self.word = vocab_size // 32
        self.bit = bitmask([vocab_size], vocab_size)[self.word]


class Matcher:
    """What the grammar of one answer allows next.

    One thread at a time.

    Args:
        grammar: compiled; it is copied, so several answers may follow the same one.
        ends: what ends the answer.
        last_resort: whether the answer is ended only where nothing else is allowed.

    Attributes:
        error_code: what went wrong, once something did; the answer cannot go on then.
        ended: whether the text is whole and no token can be added.
    """

    __slots__ = (
        "_begun",
        "_ends",
        "_grammar",
        "_inner",
        "_last_resort",
        "ended",
        "error_code",
    )

    def __init__(
        self, grammar: CompiledGrammar, ends: EndTokens, *, last_resort: bool = False
    ) -> None:
        self._grammar = grammar
        self._inner: llguidance.LLMatcher | None = None
        self._begun = False
        self._ends = ends
        self._last_resort = last_resort
        self.error_code: str | None = None
        self.ended = False

    def fill(self, row: Bits) -> None:
        """Set the bit of each token that may come next.

        The library does the work without the interpreter lock.

        Args:
            row: [`mask_words(vocab_size)`], contiguous; bit `i % 32` of word `i // 32` is token i.
                All bits are set once there is an `error_code`.
        """
        if self.error_code is None:
            began = time.thread_time()
            try:
                self._fill(row)
            except BaseException:  # a panic of the library is no Exception
                self.error_code = "invalid_grammar"
            self._check_time(began)
        if self.error_code is not None:
            row.fill(-1)

    def advance(self, token_id: int) -> None:
        """The answer goes on with a token."""
        if self.error_code is not None or self.ended:
            return
        if token_id in self._ends.token_ids:
            self.ended = True
            return
        began = time.thread_time()
        try:
            inner = self._started()
            self._begun = True
            if inner.consume_token(token_id):
                self.ended = inner.is_stopped()
            else:
                self.error_code = code_of(inner.get_error())
        except BaseException:  # a panic of the library is no Exception
            self.error_code = "invalid_grammar"
        self._check_time(began)

    def _check_time(self, began: float) -> None:
        if time.thread_time() - began > TOKEN_CPU_SECONDS:
            self.error_code = "grammar_too_large"

    def _fill(self, row: Bits) -> None:
        inner = self._started()
        inner.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        if inner.is_error():
            self.error_code = code_of(inner.get_error())
            return
        if not self._begun and self._grammar.not_first is not None:
            row &= ~self._grammar.not_first
        ends = self._ends
        if row[ends.word] & ends.bit:
            row[ends.word] &= ~ends.bit
            if not (self._last_resort and row.any()):
                row |= ends.bits
        if not row.any():
            self.error_code = "invalid_grammar"

    def _started(self) -> llguidance.LLMatcher:
        if self._inner is None:
            self._inner = self._grammar.matcher.deep_copy()
        return self._inner


def bitmask(token_ids: Iterable[int], vocab_size: int) -> Bits:
    """[`mask_words(vocab_size)`], int32: a bit for each of the tokens."""
    flags = np.zeros(32 * mask_words(vocab_size), dtype=np.uint8)
    flags[list(token_ids)] = 1
    return np.packbits(flags, bitorder="little").view(np.int32)
