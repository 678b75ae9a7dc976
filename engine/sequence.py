"""One request on its way through the engine."""

from __future__ import annotations

import enum

from engine.batch import SampledLogprobs
from engine.blocks import BlockPool, BlockTable
from engine.logit_rules import LogitRules
from engine.prefix_tree import BlockTokens, PrefixNode
from engine.prompt_work import PromptProgress, PromptWork
from engine.request import FinishReason, Request
from engine.swap_space import SwappedBlocks
from engine.task import Embed, Pooling, Score

NEVER = 1 << 62


class SequenceStatus(enum.Enum):
    WAITING = "waiting"  # holds no blocks
    RUNNING = "running"  # holds blocks for all of its tokens
    FINISHED = "finished"


class Sequence:
    """A request, the tokens that it got, and where their KV is.

    Attributes:
        arrival: counts the requests of a scheduler; the lower came first.
        wave: steps that had been planned when it came; those of one wave came together.
        rank: sorts sequences from the first to the last to be served.
        output_token_ids: generated tokens, the one that stopped it included.
        num_tokens: prompt and generated tokens.
        logprobs: of each of `output_token_ids`; empty where the request asks for none.
        finish_reason: None until it has ended.
        error_code: with `FinishReason.ERROR`, what went wrong.
        num_computed_tokens: tokens whose KV is in the blocks of `block_table`.
        cached_tokens: prompt tokens found in the prefix cache at the first admission.
        num_admissions: times it was taken from the waiting queue into the batch.
        max_output_tokens: most tokens to generate, within the model's length.
        stop_token_ids: tokens that end it.
        logit_rules: what is done to its logits; None where nothing is.
        prefix_node: deepest known node of the prefix tree on the sequence's path. While it
            runs, it holds the blocks up to there; while it waits, the node may leave the tree.
        prefix_depth: number of blocks up to `prefix_node`.
        leading: pending nodes that it is going to compute, the next one last.
        shared_blocks: blocks of its table that others had computed when it was admitted.
        publish_at: number of computed tokens at which its next block enters the tree.
        generates: whether it samples tokens once its prompt is computed.
        prompt: what it wants of its prompt and has got of it; None where it wants nothing.
        swapped: what it keeps in host memory while it waits; None if nothing.
        gap: where a prefix that it shared has to be computed again, and what follows has come
            back from host memory: the end of that prefix, and the tokens that are in the cache
            once it is computed.
        waiting_place: sorts the sequences that wait for their first admission; the waiting
            queue sets it.
        tail_shared: whether the block that its next token goes to may have other holders; it
            gets a copy of its own before it writes (see `BlockManager.grow`).
        places: of the batch that it takes: rows of a step, and tokens to decode.
        num_candidates: likeliest tokens that it asks for in place of one that is sampled.
        beams: what holds its blocks in place of itself, while it searches by beams.
        group: the sequence whose beam it is; None if it is none.
        forked_from: the sequence whose blocks it shares once the step that computes their
            prompt has retired. Until then it runs, but holds no blocks.
    """

    places: int = 1
    num_candidates: int = 0
    beams: tuple[Sequence, ...] = ()
    group: Sequence | None = None

    __slots__ = (
        "arrival",
        "block_table",
        "cached_tokens",
        "error_code",
        "finish_reason",
        "forked_from",
        "gap",
        "generates",
        "leading",
        "logit_rules",
        "logprobs",
        "max_output_tokens",
        "num_admissions",
        "num_computed_tokens",
        "num_tokens",
        "output_token_ids",
        "prefix_depth",
        "prefix_node",
        "prompt",
        "prompt_token_ids",
        "publish_at",
        "rank",
        "request",
        "request_id",
        "shared_blocks",
        "status",
        "stop_token_ids",
        "swapped",
        "tail_shared",
        "waiting_place",
        "wave",
    )

    def __init__(
        self,
        request: Request,
        arrival: int,
        *,
        pool: BlockPool,
        root: PrefixNode | None,
        max_output_tokens: int,
        stop_token_ids: frozenset[int],
        wave: int = 0,
        logit_rules: LogitRules | None = None,
    ) -> None:
        self.request = request
        self.request_id = request.request_id
        self.arrival = arrival
        self.wave = wave
        self.rank = (-request.priority, arrival)
        self.prompt_token_ids = request.token_ids
        if isinstance(request.task, Score):
            self.prompt_token_ids = request.token_ids[:-1]  # nothing is read after the last
        self.generates = request.task is None
        self.prompt = _progress(request)
        self.output_token_ids: list[int] = []
        self.num_tokens = len(self.prompt_token_ids)
        self.logprobs: list[SampledLogprobs] = []
        self.max_output_tokens = max_output_tokens
        self.stop_token_ids = stop_token_ids
        self.logit_rules = logit_rules
        self.status = SequenceStatus.WAITING
        self.finish_reason: FinishReason | None = None
        self.error_code: str | None = None
        self.num_computed_tokens = 0
        self.cached_tokens = 0
        self.num_admissions = 0
        self.block_table = BlockTable(pool)
        self.prefix_node = root
        self.prefix_depth = 0
        self.leading: list[PrefixNode] = []
        self.shared_blocks = 0
        self.swapped: SwappedBlocks | None = None
        self.gap: tuple[int, int] | None = None
        self.waiting_place = (0, 0, arrival)
        self.publish_at = NEVER
        self.tail_shared = False
        self.forked_from: Sequence | None = None

    @property
    def whole(self) -> Sequence:
        """The sequence that runs, waits and ends: of a beam its group, else itself."""
        return self.group or self

    def next_blocks(self, block_size: int) -> int:
        """Most blocks that it may need for the tokens of its next step, once it runs."""
        return 1

    def fold(self) -> tuple[Sequence, ...]:
        """It loses its blocks: returns its beams, which it has no more."""
        return ()

    def append(self, token_id: int) -> None:
        """It generated one more token."""
        self.output_token_ids.append(token_id)
        self.num_tokens += 1

    def replace_output(self, token_ids: list[int]) -> None:
        """It generated these tokens, in place of those that it had."""
        self.output_token_ids = token_ids
        self.num_tokens = len(self.prompt_token_ids) + len(token_ids)

    @property
    def prompt_work(self) -> PromptWork | None:
        """What is still wanted of its prompt."""
        return self.prompt.work if self.prompt is not None and not self.prompt.is_complete else None

    @property
    def num_reusable_tokens(self) -> int:
        """Most tokens whose KV may be another's: the output of the next one is wanted."""
        work = self.prompt_work
        return self.num_tokens - 1 if work is None else min(work.first, self.num_tokens - 1)

    @property
    def length_is_known(self) -> bool:
        """Whether it goes on to `max_output_tokens` unless the caller ends it."""
        if not self.generates:
            return True
        return not self.stop_token_ids and not self.request.params.stop

    def tokens(self, start: int, end: int) -> BlockTokens:
        """The token ids at positions `start .. end - 1`; costs what it returns."""
        prompt_length = len(self.prompt_token_ids)
        if end <= prompt_length:
            return self.prompt_token_ids[start:end]
        if start >= prompt_length:
            return tuple(self.output_token_ids[start - prompt_length : end - prompt_length])
        return self.prompt_token_ids[start:] + tuple(self.output_token_ids[: end - prompt_length])


def _progress(request: Request) -> PromptProgress | None:
    """What a request wants of the positions of its prompt."""
    tokens, task = request.token_ids, request.task
    if isinstance(task, Score):
        return PromptProgress(PromptWork(tokens, task.context - 1, logprobs=0))
    if isinstance(task, Embed):
        first = len(tokens) - 1 if task.pooling is Pooling.LAST else 0
        return PromptProgress(PromptWork(tokens, first, pooling=task.pooling))
    if request.params.prompt_logprobs is not None:
        return PromptProgress(PromptWork(tokens, 0, logprobs=request.params.prompt_logprobs))
    return None
