"""Runs a planned step on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.batch import Batch, SampledToken, ScheduledSequence
from engine.decode_graphs import DecodeGraphs
from engine.grammar.masks import GrammarMasks, StepMask
from engine.kv_cache import KVCache
from engine.launched_step import LaunchedStep, SampledRows
from engine.loading.loaded import LoadedModel
from engine.logits_processors import LogitsProcessors
from engine.one_thread import one_thread
from engine.step_inputs import StepArrays, StepInputs
from engine.step_logprobs import StepLogprobs
from engine.step_prompts import HiddenRows, StepPrompts
from kernels.attention_plan import plan_on_host
from kernels.host_tensors import integers
from kernels.sampling import LogitsProcessor, RowSampling, sample, sampling_rules


class Runner:
    """Computes batches with one model on one device.

    Args:
        loaded: the model, on its device.
        kv_cache: of the same device and dtype.
        masks: what the grammars of sequences allow; None where none has one.
        threads: torch's threads on a CPU, for the whole process; None leaves them alone.
        graphs: for steps of decodes; None launches their kernels one by one.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        kv_cache: KVCache,
        *,
        masks: GrammarMasks | None = None,
        threads: int | None = None,
        graphs: DecodeGraphs | None = None,
    ) -> None:
        self.loaded = loaded
        self.kv_cache = kv_cache
        self._processors = LogitsProcessors(loaded.config.vocab_size, loaded.device)
        self._masks = masks
        self._graphs = graphs
        if threads is not None:
            torch.set_num_threads(threads)

    def execute(self, batch: Batch) -> list[SampledToken]:
        """Compute a step and sample.

        Returns:
            One token for each sequence with `samples`, in the order of the batch; and with or
            between them, the pieces of prompts that are wanted.
        """
        return self.launch(batch).collect() if batch else []

    @torch.inference_mode()
    def launch(self, batch: Batch, before: LaunchedStep | None = None) -> LaunchedStep:
        """Give the device a step; on a GPU this does not wait for it, nor for the one before.

        Args:
            batch: not an empty one.
            before: the step that samples this one's pending tokens, where it has any.
        """
        self.kv_cache.copy_blocks(batch.copies)
        sampling = [s for s in batch.sequences if s.samples]
        mask = self._masks.launch(sampling) if self._masks is not None else None
        inputs, logits, prompts = self._compute(batch, before)
        newest = None
        if before is not None and any(s.logit_rules is not None for s in sampling):
            newest = inputs.newest()
        rows = self._sample(sampling, logits, mask, newest) if sampling else ()
        return LaunchedStep(
            batch.sequences, rows, prompts, mask.errors() if mask is not None else {}
        )

    def _sample(
        self,
        sampling: list[ScheduledSequence],
        logits: torch.Tensor,
        mask: StepMask | None,
        newest: torch.Tensor | None,
    ) -> tuple[SampledRows, ...]:
        """A token for each of some sequences, from their rows of `logits`."""
        allowed = logits if mask is None else mask.apply(logits)
        if self.loaded.model.batch_invariant:
            # Torch's sums and exponentials may depend on the number of rows.
            rows = [slice(i, i + 1) for i in range(len(sampling))]
            self._processors.expect(sampling)
        else:
            rows = [slice(None)]
        with one_thread(self.loaded.model.batch_invariant):
            return tuple(
                self._sample_together(
                    sampling[r], logits[r], allowed[r], None if newest is None else newest[r]
                )
                for r in rows
            )

    def _sample_together(
        self,
        sampling: list[ScheduledSequence],
        logits: torch.Tensor,
        allowed: torch.Tensor,
        newest: torch.Tensor | None,
    ) -> SampledRows:
        rules = None
        if any(s.params.temperature > 0 or s.logit_rules is not None for s in sampling):
            rules = sampling_rules(
                [_row_sampling(s) for s in sampling], logits.shape[-1], self.loaded.device
            )
        # The model's own logits stay as they are: log probabilities are of them.
        processors: Sequence[LogitsProcessor] = ()
        if rules is not None:
            newest = None if newest is None else newest[rules.rows]
            processors = self._processors.prepare(sampling, rules.order, newest)
        sampled = sample(allowed, rules, processors)
        asked = StepLogprobs.launch([_logprobs(s) for s in sampling], logits, sampled)
        return SampledRows(sampling, sampled, asked)

    @torch.inference_mode()
    def logits(self, batch: Batch) -> torch.Tensor:
        """Compute a step without sampling: [sequences with `samples`, vocab_size]."""
        self.kv_cache.copy_blocks(batch.copies)
        return self._logits(self._inputs(self._arrays(batch)))

    def _logits(self, inputs: StepInputs) -> torch.Tensor:
        logits: torch.Tensor = self.loaded.model(
            inputs.token_ids, inputs.positions, self.kv_cache, inputs.plan, inputs.logit_rows
        )
        return inputs.of_samples(logits)

    def _compute(
        self, batch: Batch, before: LaunchedStep | None
    ) -> tuple[StepInputs, torch.Tensor, StepPrompts | None]:
        """The logits of the sequences that sample, and what prompts want, if any does."""
        arrays = self._arrays(batch, before)
        if self._graphs is not None and self._graphs.fit(batch.sequences):
            inputs, hidden = self._graphs.run(arrays, before)
            return inputs, inputs.of_samples(self.loaded.model.logits(hidden)), None
        inputs = self._inputs(arrays, before)
        if all(s.prompt is None for s in batch.sequences):
            return inputs, self._logits(inputs), None
        wanted, model = HiddenRows(batch.sequences), self.loaded.model
        rows = integers(wanted.tokens, self.loaded.device)
        hidden = model.hidden_states(
            inputs.token_ids, inputs.positions, self.kv_cache, inputs.plan, rows
        )
        logits = model.logits(hidden[integers(wanted.sampling, self.loaded.device)])
        prompts = wanted.launch(
            hidden,
            model.logits,
            self.loaded.config.vocab_size,
            batch_invariant=model.batch_invariant,
        )
        return inputs, logits, prompts

    def _inputs(self, arrays: StepArrays, before: LaunchedStep | None = None) -> StepInputs:
        attention = plan_on_host(
            arrays.attention,
            self.kv_cache.layer(0),
            self.loaded.config.num_heads,
            self.loaded.config.windows,
            batch_invariant=self.loaded.model.batch_invariant,
        )
        return arrays.upload(self.loaded.device, attention, before)

    def _arrays(self, batch: Batch, before: LaunchedStep | None = None) -> StepArrays:
        return StepArrays.collect(batch.sequences, self.kv_cache.block_size, before)


def _logprobs(s: ScheduledSequence) -> int | None:
    """How many of the likeliest tokens are wanted; None for no log probabilities at all."""
    return s.candidates or s.params.logprobs


def _row_sampling(s: ScheduledSequence) -> RowSampling:
    return RowSampling(
        temperature=s.params.temperature,
        top_k=s.params.top_k,
        top_p=s.params.top_p,
        seed=s.params.seed,
        position=s.end,
        sample_index=s.sample_index,
        min_p=s.params.min_p,
        processed=s.logit_rules is not None,
    )
