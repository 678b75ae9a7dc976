"""The masks of a step's rows, computed while the device runs the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from engine.batch import ScheduledSequence
from engine.grammar.matcher import Bits, Matcher, mask_words
from kernels.token_mask import mask_logits


class GrammarMasks:
    """Computes masks on a thread.

    Args:
        matchers: by request id; only of requests that have a grammar.
        vocab_size: of the model.
    """

    def __init__(self, matchers: Mapping[str, Matcher], vocab_size: int) -> None:
        self._matchers = matchers
        self._words = mask_words(vocab_size)
        # One thread: a step that is tried again waits here for the masks of the first attempt.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="masks")

    def launch(self, sampling: Sequence[ScheduledSequence]) -> StepMask | None:
        """Start to compute the masks; None where no row has a grammar.

        Args:
            sampling: the sequences of the step that sample; each has a row of the logits.
        """
        if not self._matchers:
            return None
        found = {
            row: matcher
            for row, s in enumerate(sampling)
            if (matcher := self._matchers.get(s.request_id)) is not None
        }
        if not found:
            return None
        bits = np.empty((len(found), self._words), dtype=np.int32)
        filled = self._thread.submit(_fill, list(found.values()), bits)
        keeps_logits = any(sampling[row].params.logprobs is not None for row in found)
        return StepMask(found, bits, filled, keeps_logits)


@dataclass(frozen=True, slots=True)
class StepMask:
    """The masks of one step, which may not be there yet.

    Attributes:
        matchers: of each row of the logits that has a mask, in ascending order.
        bits: [len(matchers), words].
        filled: done when they are there.
        keeps_logits: whether the model's own logits of these rows are still needed.
    """

    matchers: Mapping[int, Matcher]
    bits: Bits
    filled: Future[None]
    keeps_logits: bool

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Wait for the masks; the logits without what the rows' grammars do not allow.

        Args:
            logits: [rows, vocab_size]; changed in place unless they are still needed.
        """
        self.filled.result()
        if self.keeps_logits:
            logits = logits.clone()
        mask_logits(logits, list(self.matchers), self.bits)
        return logits

    def errors(self) -> dict[int, str]:
        """Rows whose grammar cannot be followed any more, and the error code of each."""
        return {
            row: matcher.error_code
            for row, matcher in self.matchers.items()
            if matcher.error_code is not None
        }


def _fill(matchers: Sequence[Matcher], bits: Bits) -> None:
    for matcher, row in zip(matchers, bits, strict=True):
        matcher.fill(row)
