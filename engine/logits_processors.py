"""What a step does to the logits of the rows that ask for it, before one is sampled.

Each kind of rule is one operation over all rows that have it. What it needs of a row that stays
the same or grows from step to step is kept on the device, in a table with a slot a row; a step
sends slots, new tokens and little else. Tables are made when a row first asks, and whatever a slot
holds can be made again from the sequence's tokens (see `SlotCache`): so a preempted sequence, or a
step that failed half done, needs no care.

    token bias            logit_bias, allowed tokens, banned ones, min_tokens
    penalties             repetition, then frequency and presence
    banned sequences      bad words of several tokens

It is the order of transformers and vLLM: what is banned stays so, whatever comes after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from engine.batch import PENDING, ScheduledSequence
from engine.bias_table import BiasTable
from engine.logit_rules import BannedSequences, LogitRules, TokenBias
from engine.slot_cache import SlotCache
from kernels.banned_sequences import (
    ANY_TOKEN,
    BEFORE_THE_PROMPT,
    NO_TOKEN_MATCHES,
    ban_completions,
)
from kernels.host_tensors import floats, integers, to_device
from kernels.penalties import Penalties, TokenCounts, apply_penalties
from kernels.sampling import LogitsProcessor


class LogitsProcessors:
    """Makes the processors of each step.

    Args:
        vocab_size: width of the logits.
        device: where they are.
    """

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._biases = BiasTable(vocab_size, device)
        self._penalties = _Penalties(vocab_size, device)
        self._banned = _Banned(device)

    def expect(self, sequences: Iterable[ScheduledSequence]) -> None:
        """These are prepared in this step, and not together: each is to find what it had before."""
        rules = [s.logit_rules for s in sequences if s.logit_rules is not None]
        self._penalties.reserve(sum(rule.penalizes for rule in rules))
        self._biases.reserve(2 * len({rule.bias for rule in rules}))  # and early ones
        self._banned.reserve(len({rule.banned for rule in rules}))

    def prepare(
        self,
        sequences: Sequence[ScheduledSequence],
        order: Sequence[int],
        newest: torch.Tensor | None = None,
    ) -> list[LogitsProcessor]:
        """The processors of a step, in their order; none where no row asks.

        Args:
            sequences: those that sample.
            order: which of them the rows of the scores are (`SamplingMetadata.order`).
            newest: [rows of the scores], int64, on the device, the last token of each; needed
                where one is pending.
        """
        biased: list[tuple[int, TokenBias]] = []
        penalized: list[tuple[int, ScheduledSequence]] = []
        banned: list[tuple[int, ScheduledSequence, BannedSequences]] = []
        for row, index in enumerate(order):
            sequence = sequences[index]
            rules = sequence.logit_rules
            if rules is None:
                continue
            bias = rules.bias_after(_generated(sequence))
            if bias is not None:
                biased.append((row, bias))
            if rules.penalizes:
                penalized.append((row, sequence))
            if rules.banned is not None:
                banned.append((row, sequence, rules.banned))
        made = [
            self._biases.processor(biased) if biased else None,
            self._penalties.processor(penalized, newest) if penalized else None,
            self._banned.processor(banned, newest) if banned else None,
        ]
        return [processor for processor in made if processor is not None]


class _Penalties:
    """Counts of the tokens of sequences that are penalized.

    A step adds the newest token, which is its own input, before it penalizes; only the device may
    know it. Tokens that were sampled are not added at once: a step that runs out of memory is
    computed again, and would count them twice.
    """

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._slots: SlotCache[LogitRules] = SlotCache()
        self._counts: TokenCounts | None = None
        self._counted: dict[int, int] = {}  # by slot: how many generated tokens are counted
        self.reserve = self._slots.reserve

    def processor(
        self, penalized: list[tuple[int, ScheduledSequence]], newest: torch.Tensor | None
    ) -> LogitsProcessor:
        sequences = [sequence for _, sequence in penalized]
        try:
            slots, counts = self._count(penalized, newest)
        except BaseException:
            self._slots.clear()
            raise
        rows = integers([row for row, _ in penalized], self._device)
        places = integers(slots, self._device)
        rules = [_rules(sequence) for sequence in sequences]
        penalties = Penalties(
            floats([r.repetition_penalty for r in rules], self._device)[:, None],
            floats([r.presence_penalty for r in rules], self._device)[:, None],
            floats([r.frequency_penalty for r in rules], self._device)[:, None],
        )
        return lambda scores: apply_penalties(scores, rows, counts, places, penalties)

    def _count(
        self, penalized: list[tuple[int, ScheduledSequence]], newest: torch.Tensor | None
    ) -> tuple[list[int], TokenCounts]:
        """Bring the counts up to date; returns the slots and where they are."""
        slots, new = self._slots.place(_rules(sequence) for _, sequence in penalized)
        if self._counts is None or len(self._counts.generated) != self._slots.size:
            self._counts = None  # its memory is free before more is taken
            self._counts = TokenCounts.empty(self._slots.size, self._vocab_size, self._device)
        begun: list[int] = []
        prompt: list[int] = []
        tokens: list[int] = []
        pending: list[tuple[int, int]] = []  # rows whose newest token is, and their slots
        for (row, sequence), slot in zip(penalized, slots, strict=True):
            history = sequence.history
            assert history is not None
            generated, first = _generated(sequence), slot * self._vocab_size
            missing = generated - self._counted.get(slot, 0)
            begins = sequence.logit_rules in new or not 0 <= missing <= 1
            if begins:
                begun.append(slot)
                prompt.extend(first + token for token in history.prompt_token_ids)
                older = history.output_token_ids[: max(0, generated - 1)]
                tokens.extend(first + token for token in older)
            if generated and (begins or missing):
                if _is_pending(sequence):
                    pending.append((row, slot))
                else:
                    tokens.append(first + sequence.token_ids[-1])
            self._counted[slot] = generated
        if begun:
            self._counts.begin(integers(begun, self._device), integers(prompt, self._device))
        if tokens:
            self._counts.add(integers(tokens, self._device))
        if pending:
            assert newest is not None
            rows, places = integers(pending, self._device).unbind(-1)
            self._counts.add(places * self._vocab_size + newest[rows])
        return slots, self._counts


class _Banned:
    """Tables of banned sequences; rows that ask for the same share a slot."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._slots: SlotCache[BannedSequences] = SlotCache()
        self._most = 0  # sequences of a slot
        self._length = 0  # tokens of a sequence but its last
        self._prefixes: torch.Tensor | None = None  # [slots, most, length], int32
        self._last: torch.Tensor | None = None  # [slots, most], int64
        self.reserve = self._slots.reserve

    def processor(
        self,
        banned: list[tuple[int, ScheduledSequence, BannedSequences]],
        newest: torch.Tensor | None,
    ) -> LogitsProcessor:
        rules = [rule for _, _, rule in banned]
        try:
            slots = integers(self._place(rules), self._device)
        except BaseException:
            self._slots.clear()
            raise
        assert self._prefixes is not None
        assert self._last is not None
        prefixes, last = self._prefixes[slots], self._last[slots]
        rows = integers([row for row, _, _ in banned], self._device)
        newest_last = [_tail(sequence, self._length) for _, sequence, _ in banned]
        tails = to_device(torch.tensor(newest_last, dtype=torch.int32), self._device)
        pending = [(row, i) for i, (row, sequence, _) in enumerate(banned) if _is_pending(sequence)]
        if pending:
            assert newest is not None
            late, places = integers(pending, self._device).unbind(-1)
            tails[places, -1] = newest[late].int()
        return lambda scores: ban_completions(scores, rows, tails, prefixes, last)

    def _place(self, rules: list[BannedSequences]) -> list[int]:
        most = max(len(rule.sequences) for rule in rules)
        length = max(rule.longest for rule in rules) - 1
        if most > self._most or length > self._length:
            self._most = max(self._most, _power_of_two(most))
            self._length = max(self._length, _power_of_two(length))
            self._slots.clear()
        slots, new = self._slots.place(rules)
        if self._last is None or self._last.shape != (self._slots.size, self._most):
            self._prefixes = self._last = None
        if self._prefixes is None or self._prefixes.shape[-1] != self._length:
            shape = (self._slots.size, self._most, self._length)
            self._prefixes = torch.empty(shape, dtype=torch.int32, device=self._device)
            self._last = torch.empty(shape[:2], dtype=torch.int64, device=self._device)
        assert self._last is not None
        if new:
            prefixes, last = self._written(list(new))
            where = integers(list(new.values()), self._device)
            self._prefixes.index_copy_(0, where, to_device(prefixes, self._device))
            self._last.index_copy_(0, where, to_device(last, self._device))
        return slots

    def _written(self, rules: list[BannedSequences]) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of the two tables, on the host."""
        none = [NO_TOKEN_MATCHES] * self._length
        prefixes = [
            [[ANY_TOKEN] * (self._length + 1 - len(s)) + list(s[:-1]) for s in rule.sequences]
            + [none] * (self._most - len(rule.sequences))
            for rule in rules
        ]
        last = [
            [s[-1] for s in rule.sequences] + [0] * (self._most - len(rule.sequences))
            for rule in rules
        ]
        return torch.tensor(prefixes, dtype=torch.int32), torch.tensor(last, dtype=torch.int64)


def _rules(sequence: ScheduledSequence) -> LogitRules:
    assert sequence.logit_rules is not None
    return sequence.logit_rules


def _generated(sequence: ScheduledSequence) -> int:
    """Tokens that were generated before the one that is sampled now."""
    assert sequence.history is not None
    return sequence.end - len(sequence.history.prompt_token_ids)


def _is_pending(sequence: ScheduledSequence) -> bool:
    """Whether the host does not know the sequence's newest token."""
    return sequence.token_ids == (PENDING,)


def _tail(sequence: ScheduledSequence, length: int) -> list[int]:
    """The last `length` tokens before the one that is sampled now; the newest may be `PENDING`."""
    assert sequence.history is not None
    generated = _generated(sequence)
    found: list[int] = []
    if generated:
        # The newest is the step's own input, and may not be in the history yet.
        older = sequence.history.output_token_ids[max(0, generated - length) : generated - 1]
        found = [*older, sequence.token_ids[-1]]
    if len(found) < length:
        found = [*sequence.history.prompt_token_ids[len(found) - length :], *found]
    return [BEFORE_THE_PROMPT] * (length - len(found)) + found


def _power_of_two(count: int) -> int:
    """The least one that is not smaller."""
    return 1 << (count - 1).bit_length()
