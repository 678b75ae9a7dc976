"""Limits of the scheduler, and which requests can never be served within them."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import ConfigError, RequestError
from engine.request import Request
from engine.task import Score, Task


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Limits within which requests are served.

    Attributes:
        num_blocks: size of the KV pool in blocks.
        block_size: tokens in a block.
        max_num_seqs: most sequences that run at once.
        max_num_batched_tokens: token budget of a step.
        max_model_len: longest sequence (prompt and answer) in tokens.
        eos_token_ids: the model's own tokens that end an answer.
        enable_prefix_caching: share the KV of equal prefixes.
        reserve_growth: admit a sequence of known length only if it can grow to its end without
            a preemption. It saves computing tokens again and costs places in the batch: right
            where a token is dear beside a step, as on a CPU.
        watermark: share of the pool that stays available when a sequence is admitted beside
            others, and at least a block for each: room to grow before anybody is preempted.
        swap_blocks: host blocks for the KV of preempted sequences.
    """

    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    eos_token_ids: frozenset[int]
    enable_prefix_caching: bool = True
    reserve_growth: bool = True
    watermark: float = 0.01
    swap_blocks: int = 0

    def __post_init__(self) -> None:
        for name in (
            "num_blocks",
            "block_size",
            "max_num_seqs",
            "max_num_batched_tokens",
            "max_model_len",
        ):
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(f"{name} is {value}; it must be 1 or more")
        if self.swap_blocks < 0:
            raise ConfigError(f"swap_blocks is {self.swap_blocks}; it must be 0 or more")
        if not 0 <= self.watermark < 1:
            raise ConfigError(
                f"watermark is {self.watermark}; it must be a share of the pool, 0 or more and "
                "less than 1"
            )

    @property
    def watermark_blocks(self) -> int:
        """Blocks that stay available when a sequence is admitted beside others."""
        return int(self.watermark * self.num_blocks)

    @property
    def tokens_per_place(self) -> int:
        """Tokens of the KV pool for each sequence when all places are taken."""
        return self.num_blocks * self.block_size // self.max_num_seqs

    def longest_answer(self, request: Request) -> int:
        """Most tokens that the request can be given: its `max_tokens` within the model's length.

        One that is scored or embedded is given none.

        Raises:
            RequestError: it can never be served (`empty_prompt`, `empty_continuation`,
                `prompt_too_long`, `kv_cache_too_small`).
        """
        prompt = len(request.token_ids)
        if prompt == 0:
            raise RequestError("empty_prompt", "the prompt has no tokens", "prompt")
        if request.task is not None:
            self._check_task(request.task, prompt)
            return 0
        if prompt >= self.max_model_len:
            raise RequestError(
                "prompt_too_long",
                f"the prompt has {prompt} tokens, but prompt and answer together may have "
                f"{self.max_model_len}; shorten the prompt to {self.max_model_len - 1} tokens "
                "or fewer",
                "prompt",
            )
        answer = min(request.params.max_tokens, self.max_model_len - prompt)
        # The last token of an answer is never read, so its KV is never stored.
        capacity, stored = self.num_blocks * self.block_size, prompt + answer - 1
        if stored > capacity:
            raise RequestError(
                "kv_cache_too_small",
                f"the prompt has {prompt} tokens and its answer up to {answer}, but the whole KV "
                f"cache holds {capacity} ({self.num_blocks} blocks of {self.block_size}); lower "
                "max_tokens, or give the KV cache more memory (num_blocks, "
                "gpu_memory_utilization; cpu_kv_cache_bytes on a CPU)",
                "prompt" if prompt > capacity else "max_tokens",
            )
        return answer

    def _check_task(self, task: Task, tokens: int) -> None:
        if isinstance(task, Score) and task.context < 1:
            raise RequestError("empty_prompt", "the context has no tokens", "prompt")
        if isinstance(task, Score) and task.context >= tokens:
            raise RequestError(
                "empty_continuation", "the continuation has no tokens: there is nothing to score",
                "choices",
            )  # fmt: skip
        what = "context and continuation have" if isinstance(task, Score) else "the text has"
        if tokens > self.max_model_len:
            raise RequestError(
                "prompt_too_long",
                f"{what} {tokens} tokens, but the model and its settings take "
                f"{self.max_model_len}; shorten the text",
                "prompt",
            )
        # Nothing reads what comes after the last token of a continuation: it is not computed.
        stored, capacity = tokens - isinstance(task, Score), self.num_blocks * self.block_size
        if stored > capacity:
            raise RequestError(
                "kv_cache_too_small",
                f"{what} {tokens} tokens, but the whole KV cache holds {capacity} "
                f"({self.num_blocks} blocks of {self.block_size}); shorten the text, or give the "
                "KV cache more memory (num_blocks, gpu_memory_utilization; cpu_kv_cache_bytes on "
                "a CPU)",
                "prompt",
            )
