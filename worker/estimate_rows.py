"""How much the rows of a job are, in tokens and KV blocks, for `worker.estimate`.

Tokens are counted by what the worker itself makes of the rows, and the shared ones by the
engine's own prefix tree: nothing of either is imitated here.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.block_manager import BlockManager
from engine.errors import RequestError
from engine.messages import TokenCounts
from engine.request import Request
from engine.scheduler_config import SchedulerConfig
from engine.sequence import Sequence
from engine.task import Score
from jobs.records import RowErrorInfo, RowResult
from worker.requests import Prepared, PreparedRow
from worker.row_samples import RowSamples

# Of the tree in which shared tokens are looked for: about 100 MB of this process. The blocks that
# were used longest ago leave it, as they do in an engine, few of which have as many.
TREE_BLOCKS = 1 << 17
_SHOWN_ERRORS = 3
_NO_LIMIT = 1 << 40  # of blocks: what does not fit into a cache is another question


class SharedPrefixes:
    """What a prefix cache would have of each request, if they came one after the other."""

    def __init__(self, block_size: int, num_blocks: int = TREE_BLOCKS) -> None:
        self._blocks = BlockManager(num_blocks, block_size, enable_prefix_caching=True)

    def cached(self, request: Request) -> int:
        """How many of the request's tokens were computed for earlier ones."""
        assert self._blocks.tree is not None
        sequence = Sequence(
            request, 0, pool=self._blocks.pool, root=self._blocks.tree.root,
            max_output_tokens=0, stop_token_ids=frozenset(),
        )  # fmt: skip
        self._blocks.look_up(sequence)
        if not self._blocks.admit(sequence, reserve=0):
            return 0  # longer than the whole tree
        found = sequence.num_computed_tokens
        sequence.num_computed_tokens = sequence.num_tokens
        self._blocks.publish(sequence)
        self._blocks.prove(sequence)
        self._blocks.take_copies()
        self._blocks.release(sequence)
        return found


class Sizes:
    """Sizes of which there may be very many, and few different ones."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, size: int) -> None:
        self._counts[size] += 1

    def quantile(self, share: float) -> int:
        """The smallest size that is at least as large as that share of all; 0 if there is none."""
        wanted, seen = share * self._counts.total(), 0
        for size in sorted(self._counts):
            seen += self._counts[size]
            if seen >= wanted:
                return size
        return 0

    @property
    def mean(self) -> float:
        total = sum(size * number for size, number in self._counts.items())
        return total / max(1, self._counts.total())

    @property
    def largest(self) -> int:
        return max(self._counts, default=0)

    def over(self, size: int) -> int:
        """How many are larger."""
        return sum(number for each, number in self._counts.items() if each > size)


@dataclass
class RowTally:
    """Takes the rows of a job as the worker prepared them.

    Attributes:
        rows: those that an engine would compute.
        refused: those that it, or the worker, would not.
        cut: rows that may reach the end of the model's context before `max_tokens`.
        completion_tokens: the most that all answers may have.
        blocks: KV blocks of each row when its answers are as long as they may be.
        largest: blocks of the largest rows, as many as may run at once.
    """

    max_model_len: int
    block_size: int
    max_num_seqs: int
    shares: bool = True
    rows: int = 0
    refused: int = 0
    cut: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    errors: list[RowErrorInfo] = field(default_factory=list)
    prompts: Sizes = field(default_factory=Sizes)
    blocks: Sizes = field(default_factory=Sizes)
    largest: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._prefixes = SharedPrefixes(self.block_size)
        self._limits = SchedulerConfig(
            num_blocks=_NO_LIMIT,
            block_size=self.block_size,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=1,
            max_model_len=self.max_model_len,
            eos_token_ids=frozenset(),
        )

    def add(self, prepared: Prepared, lines: Mapping[int, int]) -> None:
        """Take some rows.

        Args:
            lines: of the input, by row_index.
        """
        for result in prepared.refused:
            self._refuse(result)
        for row in prepared.rows:
            try:
                answers = [self._limits.longest_answer(request) for request in row.requests]
            except RequestError as error:
                info = RowErrorInfo(error.code, str(error), lines[row.row_index], error.field)
                self._refuse(RowResult(row.row_index, finish_reason="error", error=info))
            else:
                self._take(row, answers)

    def _refuse(self, result: RowResult) -> None:
        assert result.error is not None
        self.refused += 1
        self.codes[result.error.code] += 1
        # Rows come in the order in which they are planned; the first in the input are told.
        self.errors = sorted([*self.errors, result.error], key=_line)[:_SHOWN_ERRORS]

    def _take(self, row: PreparedRow, answers: list[int]) -> None:
        cached = [
            self._prefixes.cached(request) if self.shares and (i == 0 or request.task) else None
            for i, request in enumerate(row.requests)
        ]
        counts = RowSamples(row).counts(
            {
                request.request_id: TokenCounts(
                    len(request.token_ids),
                    # The other samples find what the first one did, and what that computed.
                    cached[0] or 0 if found is None else found,
                    answer * _told(request),
                )
                for request, answer, found in zip(row.requests, answers, cached, strict=True)
            }
        )
        self.rows += 1
        self.prompt_tokens += counts.prompt_tokens
        self.cached_tokens += counts.cached_tokens
        self.completion_tokens += counts.completion_tokens
        self.cut += any(map(_is_cut, row.requests, answers))
        self.prompts.add(counts.prompt_tokens)
        blocks = self._blocks_of(row, answers)
        self.blocks.add(blocks)
        if len(self.largest) < self.max_num_seqs:
            heapq.heappush(self.largest, blocks)
        else:
            heapq.heappushpop(self.largest, blocks)

    def _blocks_of(self, row: PreparedRow, answers: list[int]) -> int:
        """Samples share the full blocks of the prompt; continuations those of the context."""
        first = row.requests[0]
        common = len(first.token_ids)
        if isinstance(first.task, Score):
            common = first.task.context
        shared = common // self.block_size
        total = shared
        for request, answer in zip(row.requests, answers, strict=True):
            # The KV of the last token of an answer, or of a continuation, is never stored.
            unread = answer > 0 or isinstance(request.task, Score)
            stored = len(request.token_ids) + answer - unread
            own = max(0, -(-stored // self.block_size) - shared)
            total += own * request.params.num_beams
        return total

    def as_json(self) -> dict[str, Any]:
        """What was counted, as `pagemill estimate` reads it."""
        return {
            "rows": self.rows,
            "refused": self.refused,
            "codes": dict(self.codes),
            "errors": [{"line": e.line, "code": e.code, "message": e.message} for e in self.errors],
            "prompt_tokens": {
                "total": self.prompt_tokens,
                "median": self.prompts.quantile(0.5),
                "p95": self.prompts.quantile(0.95),
                "max": self.prompts.largest,
            },
            "shared_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "cut_short": self.cut,
        }


def _line(error: RowErrorInfo) -> int:
    return error.line or 0


def _told(request: Request) -> int:
    """Answers of the full length that come back for a request."""
    return request.params.num_return_sequences if request.params.num_beams > 1 else 1


def _is_cut(request: Request, answer: int) -> bool:
    return request.task is None and answer < request.params.max_tokens
