"""The engine: requests in, finished answers out, one step at a time."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from engine.batch import Batch
from engine.beam_group import BeamGroup
from engine.beam_output import beam_output, check_vocabulary
from engine.config import EngineConfig
from engine.decode_graphs import open_decode_graphs
from engine.detokenizer import StopStringWatch, decode, load_tokenizer
from engine.errors import ROW_ERRORS, ConfigError, EngineError, RequestError, duplicate_request
from engine.grammar.masks import GrammarMasks
from engine.grammar.requests import GrammarRequests
from engine.house import check_kernels_package
from engine.kv_cache import KVCache
from engine.kv_format import choose_kv_format
from engine.loading import load_model, resolve_model
from engine.logit_rules import LogitRuleBook
from engine.memory import size_kv_pool
from engine.messages import EngineStats, TokenCounts
from engine.micro_batches import MicroBatches
from engine.pipeline import Pipeline
from engine.prompt_outputs import answer_of_prompt
from engine.request import FinishReason, Request, RequestOutput
from engine.runner import Runner
from engine.scheduler import Scheduler, SchedulerConfig
from engine.sequence import Sequence
from engine.startup import tell
from engine.step_times import StepTimes
from engine.swap_pool import open_swap_pool
from engine.time_limits import TimeLimits
from engine.token_texts import TokenTexts

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from engine.device_time import DeviceTime
    from engine.loading import ModelFiles
    from engine.loading.loaded import LoadedModel

log = logging.getLogger("pagemill.engine")
CPU_TOKEN_BUDGET, GPU_TOKEN_BUDGET = 512, 8192
# How long an engine that waits for grammars alone does so before it looks for messages.
LOOK_SECONDS = 0.02


class Engine:
    """A model, its KV pool, and the loop of continuous batching over both.

    Not thread-safe: one thread adds, steps and aborts.

    Args:
        files: of the configured model, where they were looked up already.

    Attributes:
        device_time: told of each step; None where nobody wants to know.

    Raises:
        ModelError: the model cannot be served.
        ConfigError: the settings cannot work.
    """

    def __init__(self, config: EngineConfig, files: ModelFiles | None = None) -> None:
        began = time.monotonic()
        check_kernels_package()
        self.config = config
        self.files: ModelFiles = resolve_model(config.model) if files is None else files
        self.tokenizer: Tokenizer = load_tokenizer(self.files.path)
        self.loaded: LoadedModel = load_model(
            self.files, config.dtype, config.device, deterministic=config.deterministic
        )
        self._log_loaded(time.monotonic() - began)
        on_cpu = self.loaded.device.type == "cpu"
        budget = config.max_num_batched_tokens or (CPU_TOKEN_BUDGET if on_cpu else GPU_TOKEN_BUDGET)
        limit = self.loaded.config.max_model_len
        if config.max_model_len is not None and config.max_model_len > limit:
            raise ConfigError(
                f"max_model_len is {config.max_model_len}, but {config.model} goes to {limit} "
                "tokens; ask for less"
            )
        self.max_model_len = config.max_model_len or limit
        kv_format = choose_kv_format(config.kv_cache_dtype, self.loaded.dtype, self.loaded.device)
        tell("sizing the KV cache")
        num_blocks = size_kv_pool(
            config,
            self.loaded,
            kv_format,
            max_model_len=self.max_model_len,
            max_num_batched_tokens=budget,
        )
        self.kv_cache = KVCache.create(
            self.loaded.config, num_blocks, config.block_size, kv_format, self.loaded.device
        )
        vocab_size = self.loaded.config.vocab_size
        self._grammars = GrammarRequests(self.tokenizer, vocab_size, self.loaded.eos_token_ids)
        masks = GrammarMasks(self._grammars.matchers, vocab_size)
        self.runner = Runner(
            self.loaded,
            self.kv_cache,
            masks=masks,
            threads=config.threads,
            graphs=open_decode_graphs(config, self.loaded, self.kv_cache, self.max_model_len),
        )
        swap_pool, self._swap_cost = open_swap_pool(config, self.kv_cache)
        self._steps = MicroBatches(
            lambda batch: self.runner.execute(batch),
            self.kv_cache.copy_blocks,
            budget,
            swap_pool,
        )
        self.scheduler = Scheduler(
            SchedulerConfig(
                num_blocks=num_blocks,
                block_size=config.block_size,
                max_num_seqs=config.max_num_seqs,
                max_num_batched_tokens=budget,
                max_model_len=self.max_model_len,
                eos_token_ids=self.loaded.eos_token_ids,
                enable_prefix_caching=config.enable_prefix_caching,
                reserve_growth=on_cpu,
                watermark=config.watermark,
                swap_blocks=swap_pool.num_blocks,
            ),
            self._swap_cost,
        )
        overlaps = not on_cpu if config.overlap is None else config.overlap
        self._pipeline = Pipeline(
            self.scheduler,
            self._steps,
            (lambda batch, before: self.runner.launch(batch, before)) if overlaps else None,
            self._swap_cost.observe,
        )
        self._rules = LogitRuleBook(
            self.tokenizer, self.loaded.config.vocab_size, self.loaded.eos_token_ids
        )
        self._watches: dict[str, StopStringWatch] = {}
        self._texts = TokenTexts(self.tokenizer)
        self._times = StepTimes()
        self.device_time: DeviceTime | None = None
        self._limits = TimeLimits()
        self.load_seconds = time.monotonic() - began

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises:
            RequestError: it can never be served; nothing else is touched.
        """
        size = self.loaded.config.vocab_size
        strange = next((t for t in request.token_ids if not 0 <= t < size), None)
        if strange is not None:
            raise RequestError(
                "unknown_token",
                f"token id {strange} is not one of the model's {size} tokens; the tokenizer does "
                "not fit the model",
                "token_ids",
            )
        if request.params.num_beams > 1:
            check_vocabulary(request.params, len(self.loaded.eos_token_ids), size)
        if request.request_id in self._grammars:
            raise duplicate_request(request.request_id)
        self.scheduler.check(request)
        if request.params.grammar is not None and request.task is None:
            # Whoever is held is queued in the middle of a step, where no request can be refused.
            self._rules.rules_of(request.params)
            self._grammars.hold(request)
        else:
            self._queue(request)

    def _queue(self, request: Request) -> None:
        self.scheduler.add(request, self._rules.rules_of(request.params))
        self._limits.add(request)
        if request.params.stop and request.task is None:
            self._watches[request.request_id] = StopStringWatch(
                self.tokenizer,
                request.params.stop,
                include=request.params.include_stop_str_in_output,
                min_tokens=request.params.min_tokens,
            )

    def abort(self, request_id: str) -> None:
        """Take a request back; unknown ids are passed over. It gives no output."""
        self.scheduler.abort(request_id)
        self._limits.forget(request_id)
        self._grammars.forget(request_id)
        self._watches.pop(request_id, None)

    @property
    def has_unfinished(self) -> bool:
        return (
            self.scheduler.has_unfinished
            or self._grammars.num_held > 0
            or self._pipeline.in_flight > 0
        )

    @property
    def stats(self) -> EngineStats:
        scheduler = self.scheduler
        return EngineStats(
            running=scheduler.num_running,
            waiting=scheduler.num_waiting + self._grammars.num_held,
            step_seconds=self._times.seconds,
            step_buckets=self._times.buckets,
            out_of_memory=self._steps.failures,
            **dataclasses.asdict(scheduler.stats),
        )

    def step(
        self, on_planned: Callable[[tuple[Sequence, ...]], None] | None = None
    ) -> list[RequestOutput]:
        """Compute one batch; returns the requests that it finished.

        Overlapped, the next one is planned and given to the device before this one is waited for.

        Args:
            on_planned: called before anything of a batch is computed, with the sequences that
                hold a place in it or in the one before.
        """

        def begin(batch: Batch) -> None:
            if on_planned is not None:
                on_planned(self.scheduler.running_sequences)
            self._limits.begin(batch)
            if self.device_time is not None:
                self.device_time.begin(batch)

        began = time.perf_counter()
        outputs = self._end_overdue() + self._queue_compiled()
        if not self._pipeline.fill(begin):
            if self.scheduler.has_unfinished:
                raise EngineError("the scheduler has requests but plans no work: a bug")
            return outputs or self._queue_compiled(LOOK_SECONDS)
        for sequence in self._pipeline.retire():
            if self._found_stop_string(sequence) and sequence.finish_reason is None:
                self.scheduler.finish(sequence.request_id, FinishReason.STOP)
            self._follow_grammar(sequence)
            if sequence.finish_reason is not None:
                outputs.append(self._output(sequence))
        if self.config.check_invariants:
            self.scheduler.check_invariants()
        seconds = time.perf_counter() - began
        self._times.add(seconds)
        if self.device_time is not None:
            self.device_time.add(seconds)
        return outputs

    def _queue_compiled(self, timeout: float = 0.0) -> list[RequestOutput]:
        """Queue the requests whose grammars are compiled by now; returns those that were refused.

        Args:
            timeout: seconds to wait for one.
        """
        refused = []
        for request, error in self._grammars.ready(timeout):
            if error is None:
                self._queue(request)
            else:
                refused.append(RequestOutput.refused(request.request_id, error))
        return refused

    def _follow_grammar(self, sequence: Sequence) -> None:
        """Let the grammar of a sequence know its last token, and end the sequence where it says."""
        matcher = self._grammars.matchers.get(sequence.request_id)
        if matcher is None or sequence.finish_reason is FinishReason.ERROR:
            return
        matcher.advance(sequence.output_token_ids[-1])
        if sequence.finish_reason is not None:
            return
        if matcher.error_code is not None:
            self.scheduler.finish(sequence.request_id, FinishReason.ERROR, matcher.error_code)
        elif matcher.ended:
            self.scheduler.finish(sequence.request_id, FinishReason.STOP)

    def _end_overdue(self) -> list[RequestOutput]:
        ended = (
            self.scheduler.finish(request_id, FinishReason.ERROR, "row_timeout")
            for request_id in self._limits.overdue()
        )
        return [self._output(sequence) for sequence in ended]

    def generate(self, requests: Iterable[Request]) -> Iterator[RequestOutput]:
        """Complete the requests together; answers come in the order in which they finish."""
        for request in requests:
            self.add(request)
        while self.has_unfinished:
            yield from self.step()

    def running(self) -> Mapping[str, TokenCounts]:
        """Token counts of the requests that hold a place in the batch."""
        return {
            s.request_id: TokenCounts(
                len(s.request.token_ids), s.cached_tokens, len(s.output_token_ids)
            )
            for s in self.scheduler.running_sequences
        }

    def _log_loaded(self, seconds: float) -> None:
        dtype, device = str(self.loaded.dtype).removeprefix("torch."), str(self.loaded.device)
        log.info(
            "model loaded: %s, %s on %s, in %.1f s", self.config.model, dtype, device, seconds,
            extra={
                "model": self.config.model, "revision": self.files.revision, "dtype": dtype,
                "device": device, "seconds": round(seconds, 3),
            },
        )  # fmt: skip

    def _found_stop_string(self, sequence: Sequence) -> bool:
        watch = self._watches.get(sequence.request_id)
        if watch is None or sequence.finish_reason is FinishReason.ERROR:
            return False
        return watch.found(sequence.output_token_ids)

    def _output(self, sequence: Sequence) -> RequestOutput:
        self._limits.forget(sequence.request_id)
        if isinstance(sequence, BeamGroup) and sequence.search.done:
            return beam_output(sequence, self.tokenizer)
        watch = self._watches.pop(sequence.request_id, None)
        matcher = self._grammars.matchers.get(sequence.request_id)
        self._grammars.forget(sequence.request_id)
        reason = sequence.finish_reason
        if watch is not None and watch.text is not None:
            reason, text = FinishReason.STOP, watch.text
        else:
            text = decode(self.tokenizer, sequence.output_token_ids)
            if matcher is not None and matcher.ended and reason is FinishReason.LENGTH:
                reason = FinishReason.STOP  # it was whole with its last token
        assert reason is not None
        asks = sequence.request.params.logprobs is not None and sequence.generates
        return RequestOutput(
            request_id=sequence.request_id,
            token_ids=tuple(sequence.output_token_ids),
            text=text,
            finish_reason=reason,
            prompt_tokens=len(sequence.request.token_ids),
            cached_tokens=sequence.cached_tokens,
            completion_tokens=len(sequence.output_token_ids),
            error_code=sequence.error_code,
            error_message=_error_message(sequence),
            logprobs=(
                self._texts.describe(sequence.output_token_ids, sequence.logprobs) if asks else None
            ),
            **answer_of_prompt(sequence, self._texts),
        )


def _error_message(sequence: Sequence) -> str | None:
    if sequence.error_code is None:
        return None
    return ROW_ERRORS[sequence.error_code].format(timeout=sequence.request.timeout)
