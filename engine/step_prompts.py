"""What a step computes about prompts: log probabilities of their tokens, and pooled vectors."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from engine.batch import NAN_LOGITS, SampledToken, ScheduledSequence
from engine.host_copy import HostCopy
from engine.one_thread import one_thread
from engine.prompt_work import STATE_UNITS, PromptPiece, PromptWork
from engine.task import Pooling
from kernels.greedy import NO_TOKEN, greedy_tokens
from kernels.host_tensors import to_device
from kernels.logprobs import token_logprobs

# Most logits that prompts have at once. 8,192 tokens of a vocabulary of 152,000 would have 5 GiB
# of them, of which a few bytes a token are kept.
MAX_LOGITS = 1 << 24

ToLogits = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class _Part:
    """What one sequence wants of a step.

    Attributes:
        index: the sequence's place in the batch.
        rows: its rows of the hidden states.
        positions: of these rows, in the sequence.
    """

    index: int
    work: PromptWork
    rows: range
    positions: range


class HiddenRows:
    """The tokens of a step whose hidden states are needed, where some prompt wants them.

    Attributes:
        tokens: indices into the step's tokens, ascending.
        sampling: rows of the hidden states from which a token is sampled.
    """

    def __init__(self, sequences: Iterable[ScheduledSequence]) -> None:
        self.tokens: list[int] = []
        self.sampling: list[int] = []
        self._parts: list[_Part] = []
        first = 0
        for index, sequence in enumerate(sequences):
            if sequence.prompt is not None:
                self._want(index, sequence.prompt, sequence, first)
            first += len(sequence.token_ids)
            if sequence.samples and not sequence.token_ids:  # a fork of the one before
                self.sampling.append(self.sampling[-1])
            elif sequence.samples:
                self.sampling.append(len(self.tokens))
                self.tokens.append(first - 1)

    def _want(self, index: int, work: PromptWork, sequence: ScheduledSequence, first: int) -> None:
        positions = work.within(sequence.start, sequence.end)
        if positions:
            rows = range(len(self.tokens), len(self.tokens) + len(positions))
            self.tokens.extend(first + position - sequence.start for position in positions)
            self._parts.append(_Part(index, work, rows, positions))

    def launch(
        self,
        hidden: torch.Tensor,
        to_logits: ToLogits,
        vocab_size: int,
        *,
        batch_invariant: bool = False,
    ) -> StepPrompts:
        """Start to compute what the prompts want, without waiting for it.

        Args:
            hidden: [len(tokens), hidden_size], after the final norm.
            to_logits: from some of these rows to [rows, vocab_size].
            batch_invariant: equal rows are to give equal bits, whatever is beside them.
        """
        scored = [part for part in self._parts if part.work.pooling is None]
        pooled = [part for part in self._parts if part.work.pooling is not None]
        return StepPrompts(
            scored,
            _logprobs(scored, hidden, to_logits, vocab_size, batch_invariant) if scored else None,
            pooled,
            _sums(pooled, hidden) if pooled else None,
        )


class StepPrompts:
    """The prompts' part of a step, on its way from the device.

    Args:
        logprobs: [rows of `scored`, 2 + 2k], int32: the token that greedy sampling takes, the bits
            of 1 + k log probabilities, k token ids.
        sums: [len(pooled), hidden_size], float64; see `_sums`.
    """

    def __init__(
        self,
        scored: Sequence[_Part],
        logprobs: torch.Tensor | None,
        pooled: Sequence[_Part],
        sums: torch.Tensor | None,
    ) -> None:
        self._scored, self._pooled = scored, pooled
        self._logprobs = None if logprobs is None else HostCopy(logprobs)
        self._sums = None if sums is None else HostCopy(sums)

    def fetch(self) -> dict[int, PromptPiece | None]:
        """Wait for the pieces, by place in the batch; None where they are not finite."""
        pieces: dict[int, PromptPiece | None] = {}
        if self._logprobs is not None:
            packed, at = self._logprobs.wait().numpy(), 0
            for part in self._scored:
                pieces[part.index] = _piece(part, packed[at : at + len(part.rows)])
                at += len(part.rows)
        if self._sums is not None:
            for part, vector in zip(self._pooled, self._sums.wait().numpy(), strict=True):
                finite = bool(np.isfinite(vector).all())
                values = array("d", vector.tobytes())
                pieces[part.index] = (
                    PromptPiece(part.positions.stop, values, array("i")) if finite else None
                )
        return pieces


def _logprobs(
    parts: Sequence[_Part],
    hidden: torch.Tensor,
    to_logits: ToLogits,
    vocab_size: int,
    batch_invariant: bool,
) -> torch.Tensor:
    """What `StepPrompts` calls `logprobs`, computed in slices of at most `MAX_LOGITS` logits."""
    at_once = max(1, MAX_LOGITS // vocab_size)
    rows = torch.tensor([row for part in parts for row in part.rows])
    targets = torch.tensor([part.work.tokens[p + 1] for part in parts for p in part.positions])
    rows, targets = (to_device(t, hidden.device) for t in (rows, targets))
    most = max(part.work.logprobs or 0 for part in parts)
    found: list[torch.Tensor] = []
    for at in range(0, len(rows), at_once):
        some = slice(at, at + at_once)
        logits = to_logits(hidden[rows[some]])
        # Torch's sums and exponentials may depend on the number of rows.
        together = 1 if batch_invariant else len(logits)
        with one_thread(batch_invariant):
            found += [
                _packed(logits[i : i + together], targets[some][i : i + together], most)
                for i in range(0, len(logits), together)
            ]
    return torch.cat(found)


def _packed(logits: torch.Tensor, targets: torch.Tensor, most: int) -> torch.Tensor:
    """What `StepPrompts` calls `logprobs`, of the rows of `logits`."""
    found = token_logprobs(logits, targets, most)
    values = torch.cat((found.chosen[:, None], found.top), dim=-1).view(torch.int32)
    best = greedy_tokens(logits)[:, None].int()
    return torch.cat((best, values, found.top_ids.int()), dim=-1)


def _sums(parts: Sequence[_Part], hidden: torch.Tensor) -> torch.Tensor:
    """Hidden states of each part times `STATE_UNITS`, added up in float64: [parts, hidden_size].

    Where several are added they are rounded to whole numbers first. Sums of those are exact, so
    they do not depend on the pieces in which a prompt was computed.
    """
    rows = torch.tensor([row for part in parts for row in part.rows])
    lengths = torch.tensor([len(part.rows) for part in parts])
    rows, lengths = (to_device(t, hidden.device) for t in (rows, lengths))
    states = hidden[rows].double().mul_(STATE_UNITS)
    at = 0
    for part in parts:
        if part.work.pooling is Pooling.MEAN:
            states[at : at + len(part.rows)].round_()
        at += len(part.rows)
    return torch.segment_reduce(states, "sum", lengths=lengths, axis=0, unsafe=True)


def _piece(part: _Part, packed: npt.NDArray[np.int32]) -> PromptPiece | None:
    """A part's own columns of what was computed for the part that wants the most."""
    best, width = packed[:, 0], packed.shape[1] // 2
    if (best == NO_TOKEN).any():
        return None
    k = min(part.work.logprobs or 0, width - 1)
    tokens = part.work.tokens[part.positions.start + 1 : part.positions.stop + 1]
    return PromptPiece(
        part.positions.stop,
        array("f", packed[:, 1 : 2 + k].tobytes()),
        array("i", packed[:, 1 + width : 1 + width + k].tobytes()),
        bool((best == np.array(tokens)).all()),
    )


def with_pieces(
    sequences: Iterable[ScheduledSequence],
    sampled: Iterable[SampledToken],
    pieces: Mapping[int, PromptPiece | None],
) -> list[SampledToken]:
    """Tokens of the sequences that sample, and the pieces of `StepPrompts.fetch`, as one list."""
    tokens = iter(sampled)
    together: list[SampledToken] = []
    for index, sequence in enumerate(sequences):
        token = next(tokens) if sequence.samples else SampledToken(sequence.request_id, NO_TOKEN)
        if index in pieces:
            piece = pieces[index]
            if piece is None:
                token = SampledToken(sequence.request_id, NO_TOKEN, NAN_LOGITS)
            else:
                token = token._replace(prompt=piece)
        elif not sequence.samples:
            continue
        together.append(token)
    return together
