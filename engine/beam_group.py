"""A request that is answered by beam search: its beams, their blocks, and how they change.

To the scheduler it is one sequence, which runs, waits, is preempted and ends as a whole. At first
it computes its prompt like any other. From then on it is as many beams, each with a table of
its own over blocks that they share as far as their tokens are the same.
"""

from __future__ import annotations

from collections.abc import Sequence as Listed
from typing import TYPE_CHECKING, Any

from engine.batch import SampledLogprobs
from engine.beam_search import BeamSearch, Hypothesis
from engine.errors import RequestError
from engine.request import FinishReason, Request
from engine.sequence import NEVER, Sequence, SequenceStatus

if TYPE_CHECKING:
    from engine.block_manager import BlockManager
    from engine.scheduler_config import SchedulerConfig

OF_BEAM = "/beam "  # between the id of a request and the number of one of its beams


def check_beams(config: SchedulerConfig, request: Request, longest_answer: int) -> None:
    """Refuse a request whose beams cannot run together, even alone.

    Raises:
        RequestError: `too_many_beams`, or `kv_cache_too_small`.
    """
    width, prompt = request.params.num_beams, len(request.token_ids)
    places = min(config.max_num_seqs, config.max_num_batched_tokens)
    if width > places:
        raise RequestError(
            "too_many_beams",
            f"num_beams is {width}, but this engine runs at most {places} sequences at once; ask "
            "for fewer beams, or raise max_num_seqs (and max_num_batched_tokens)",
            "num_beams",
        )
    shared = prompt // config.block_size
    own = -(-(prompt + longest_answer - 1) // config.block_size) - shared
    if shared + width * own > config.num_blocks:
        raise RequestError(
            "kv_cache_too_small",
            f"{width} beams of up to {longest_answer} tokens after a prompt of {prompt} may need "
            f"{shared + width * own} KV blocks of {config.block_size} tokens, but there are "
            f"{config.num_blocks}; lower max_tokens or num_beams, or give the KV cache more memory "
            "(num_blocks, gpu_memory_utilization; cpu_kv_cache_bytes on a CPU)",
            "max_tokens",
        )


class Beam(Sequence):
    """One running hypothesis. What all beams begin with is in the prefix tree; what they add to it
    is not, as most of it is thrown away."""

    __slots__ = ("group", "index", "num_candidates")

    def __init__(self, group: BeamGroup, index: int, hypothesis: Hypothesis) -> None:
        super().__init__(
            group.request,
            group.arrival,
            pool=group.block_table.pool,
            root=None,
            max_output_tokens=group.max_output_tokens,
            stop_token_ids=group.stop_token_ids,
        )
        self.group, self.index = group, index
        self.request_id = f"{group.request_id}{OF_BEAM}{index}"
        self.replace_output(list(hypothesis.token_ids))
        self.num_candidates = group.num_candidates
        self.status = SequenceStatus.RUNNING


class BeamGroup(Sequence):
    """All beams of one request.

    While it has no beams, it is an ordinary sequence: its prompt, and after a preemption the
    tokens with which all hypotheses begin, so that these are computed once.

    Attributes:
        search: the hypotheses, of which `beams` are the blocks.
        beams: those that hold blocks, by their index in `search.running`.
    """

    __slots__ = ("_found", "beams", "num_candidates", "places", "search")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        params = self.request.params
        self.search = BeamSearch(params, self.stop_token_ids, self.max_output_tokens)
        self.num_candidates = self.search.num_candidates
        self.places = params.num_beams
        self.beams: tuple[Beam, ...] = ()
        self._found: dict[int, SampledLogprobs] = {}

    def next_blocks(self, block_size: int) -> int:
        if self.beams:
            return self.places
        # As soon as what all have in common is computed, each beam goes on by itself.
        tokens = len(self.prompt_token_ids) + max(1, len(self.search.running[0].token_ids))
        return self.places * (-(-tokens // block_size) - self.num_tokens // block_size)

    def take(self, sequence: Sequence, found: SampledLogprobs, blocks: BlockManager) -> int:
        """Note the likeliest tokens after one beam, and go on when all beams have theirs.

        Args:
            sequence: a beam, or the group itself when it has computed what all have in common.

        Returns:
            Tokens that hypotheses were given.
        """
        running = self.search.running
        if sequence is self and len(running) > 1:  # it was preempted, and begins again from here
            self._branch([self] * len(running), blocks)
            return 0
        self._found[sequence.index if isinstance(sequence, Beam) else 0] = found
        if len(self._found) < len(running):
            return 0
        parents: Listed[Sequence] = self.beams or (self,)
        going_on = self.search.advance([self._found[index] for index in range(len(running))])
        self._found.clear()
        if not self.search.done:
            self._branch([parents[candidate.beam] for candidate in going_on], blocks)
            self.replace_output(self.beams[0].output_token_ids)  # for those who watch
        return len(running)

    def fold(self) -> tuple[Beam, ...]:
        """Become an ordinary sequence again; returns the beams, whose blocks are to be released."""
        beams, self.beams = self.beams, ()
        self._found.clear()
        self.replace_output(list(_common_start(self.search.running)))
        return beams

    def answers(self) -> tuple[tuple[Hypothesis, FinishReason], ...]:
        """The best that have ended and are asked for, the best first, and how they ended."""
        best = self.search.finished[: self.request.params.num_return_sequences]
        return tuple(
            (answer, FinishReason.STOP if answer.token_ids[-1] in self.stop_token_ids
             else FinishReason.LENGTH)
            for answer in best
        )  # fmt: skip

    def _branch(self, parents: Listed[Sequence], blocks: BlockManager) -> None:
        """Give each running hypothesis the blocks of its parent.

        The first of a parent's children takes its table over, the others fork from it.
        """
        former: Listed[Sequence] = self.beams or (self,)
        self.beams = tuple(
            Beam(self, index, hypothesis) for index, hypothesis in enumerate(self.search.running)
        )
        heirs: dict[str, Beam] = {}
        for beam, parent in zip(self.beams, parents, strict=True):
            beam.num_computed_tokens = parent.num_computed_tokens
            if heirs.setdefault(parent.request_id, beam) is not beam:
                blocks.fork(parent, beam)
        for parent in former:
            heir = heirs.get(parent.request_id)
            if heir is None:
                blocks.release(parent)
            else:
                blocks.hand_over(parent, heir)
        for beam in self.beams:
            beam.publish_at = NEVER


def _common_start(hypotheses: Listed[Hypothesis]) -> tuple[int, ...]:
    """The tokens with which all of them begin."""
    first = min(hypothesis.token_ids for hypothesis in hypotheses)
    last = max(hypothesis.token_ids for hypothesis in hypotheses)
    for index, (one, other) in enumerate(zip(first, last, strict=True)):
        if one != other:
            return first[:index]
    return first
