"""The scheduler's rules, one by one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from engine.batch import Batch, SampledToken
from engine.errors import ConfigError, EngineError, InvariantError, RequestError
from engine.request import FinishReason
from engine.sequence import SequenceStatus
from tests.support.fake_device import EOS, Simulation, config, ids, undisturbed
from tests.support.scheduling import give, request, sizes

pytestmark = pytest.mark.quick


# ---- what is refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "code", "message", "field"),
    [
        ((), 4, "empty_prompt", "no tokens", "prompt"),
        (64, 4, "prompt_too_long", r"64 tokens, but .* 64; .* 63 tokens", "prompt"),
        (30, 12, "kv_cache_too_small", r"30 tokens .* 12, .* 40 \(10 blocks of 4\)", "max_tokens"),
        (50, 1, "kv_cache_too_small", "num_blocks", "prompt"),
    ],
)
def test_a_request_that_can_never_be_served_is_refused(
    prompt: tuple[int, ...] | int, max_tokens: int, code: str, message: str, field: str
) -> None:
    sim = Simulation(config(num_blocks=10))
    with pytest.raises(RequestError, match=message) as caught:
        sim.scheduler.add(request("a", prompt, max_tokens))
    assert (caught.value.code, caught.value.field) == (code, field)
    assert not sim.scheduler.has_unfinished


def test_a_request_that_fills_the_pool_to_the_last_slot_is_served() -> None:
    sim = Simulation(config(num_blocks=10))
    sim.add(request("a", 30, 11))
    sim.drain()
    assert len(sim.ended["a"].output_token_ids) == 11


def test_an_id_is_refused_while_its_request_lives_and_free_afterwards() -> None:
    sim = Simulation(config())
    sim.add(request("a", 5, 1))
    with pytest.raises(RequestError, match="'a' is still in the engine") as caught:
        sim.scheduler.add(request("a", 5, 1))
    assert caught.value.code == "duplicate_request"
    sim.drain()
    sim.add(request("a", 5, 1))
    sim.drain()


@pytest.mark.parametrize("name", ["num_blocks", "block_size", "max_num_seqs", "max_model_len"])
def test_a_limit_below_one_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 0; it must be 1 or more"):
        config(**{name: 0})


# ---- when a sequence ends -------------------------------------------------------------------


def test_max_tokens_ends_with_length() -> None:
    sim = Simulation(config())
    sim.add(request("a", 5, 3))
    sim.drain()
    ended = sim.ended["a"]
    assert (len(ended.output_token_ids), ended.finish_reason) == (3, FinishReason.LENGTH)


def test_max_tokens_is_capped_by_the_models_length() -> None:
    sim = Simulation(config(max_model_len=10))
    sim.add(request("a", 7, 100))
    sim.drain()
    ended = sim.ended["a"]
    assert (len(ended.output_token_ids), ended.finish_reason) == (3, FinishReason.LENGTH)


@pytest.mark.parametrize(
    ("params", "token", "reason"),
    [
        ({"ignore_eos": False}, EOS, FinishReason.STOP),
        ({"ignore_eos": True}, EOS, None),
        ({"ignore_eos": True, "stop_token_ids": (5,)}, 5, FinishReason.STOP),
        ({"ignore_eos": True, "stop_token_ids": (5,)}, EOS, None),
        ({"ignore_eos": False, "stop_token_ids": (5,)}, EOS, FinishReason.STOP),
        ({"ignore_eos": False}, 5, None),
    ],
)
def test_stop_tokens(params: dict[str, object], token: int, reason: FinishReason | None) -> None:
    sim = Simulation(config())
    sim.add(request("a", 3, **params))
    (sequence,) = sim.scheduler.retire(sim.scheduler.schedule(), [SampledToken("a", token)])
    assert sequence.finish_reason is reason
    assert sequence.output_token_ids == [token]
    assert sim.scheduler.has_unfinished == (reason is None)


def test_a_stop_token_at_the_last_place_is_a_stop() -> None:
    sim = Simulation(config())
    sim.add(request("a", 3, 1, ignore_eos=False))
    (sequence,) = sim.scheduler.retire(sim.scheduler.schedule(), [SampledToken("a", EOS)])
    assert sequence.finish_reason is FinishReason.STOP


def test_the_caller_can_end_a_sequence() -> None:
    sim = Simulation(config())
    sim.add(request("a", 3))
    sim.step()
    sim.scheduler.finish("a", FinishReason.STOP)
    assert not sim.scheduler.has_unfinished
    assert sim.scheduler.stats.blocks_used == 0
    with pytest.raises(EngineError, match="cannot finish 'a'"):
        sim.scheduler.finish("a", FinishReason.STOP)


def test_nan_ends_one_sequence_with_an_error_and_no_other() -> None:
    sim = Simulation(config())
    sim.add(request("a", 6), request("b", 6))
    sim.step()
    sim.device.poison.add("a")
    sim.drain()
    ended = sim.ended["a"]
    assert (ended.finish_reason, ended.error_code) == (FinishReason.ERROR, "nan_logits")
    assert len(ended.output_token_ids) == 1
    sim.check_answers()


# ---- what a step holds ----------------------------------------------------------------------


def test_nothing_to_do_is_an_empty_batch() -> None:
    sim = Simulation(config())
    batch = sim.scheduler.schedule()
    assert not batch
    assert sim.scheduler.retire(batch, []) == []
    assert sim.scheduler.stats.steps == 0


def test_prompts_are_cut_to_fill_the_budget() -> None:
    sim = Simulation(config(max_num_batched_tokens=10))
    sim.add(request("a", 14), request("b", 9))
    first, second, third = sim.step(), sim.step(), sim.step()
    assert sizes(first) == {"a": 10}
    assert not first.sequences[0].samples
    assert sizes(second) == {"a": 4, "b": 6}
    assert [s.samples for s in second.sequences] == [True, False]
    assert sizes(third) == {"a": 1, "b": 3}
    assert [s.start for s in third.sequences] == [14, 6]
    assert [b.step for b in (first, second, third)] == [1, 2, 3]


def test_decodes_then_begun_prompts_then_new_ones() -> None:
    sim = Simulation(config(max_num_batched_tokens=10))
    sim.add(request("decodes", 4), request("begun", 12))
    sim.step()
    sim.add(request("new", 2, priority=1))
    assert list(sizes(sim.step()).items()) == [("decodes", 1), ("begun", 6), ("new", 2)]


def test_no_more_sequences_run_than_allowed() -> None:
    sim = Simulation(config(max_num_seqs=2))
    sim.add(*(request(name, 3) for name in "abc"))
    assert sizes(sim.step()).keys() == {"a", "b"}
    assert (sim.scheduler.num_running, sim.scheduler.num_waiting) == (2, 1)
    assert ids(sim.scheduler.running_sequences) == ["a", "b"]


def test_no_more_sequences_run_than_the_budget_has_tokens() -> None:
    sim = Simulation(config(max_num_batched_tokens=2))
    sim.add(*(request(name, 2) for name in "abcd"))
    while sim.scheduler.has_unfinished:
        assert sim.step().num_tokens <= 2
        assert sim.scheduler.num_running <= 2
    sim.check_answers()


def test_higher_priority_is_admitted_first() -> None:
    sim = Simulation(config(max_num_seqs=1))
    sim.add(request("low", 3, priority=-1), request("mid", 3), request("high", 3, priority=1))
    sim.drain()
    assert list(sim.ended) == ["high", "mid", "low"]


def test_the_block_table_is_the_same_object_until_a_block_is_added() -> None:
    sim = Simulation(config())
    sim.add(request("a", 5, 10))
    tables = [sim.step().sequences[0].block_table for _ in range(5)]
    assert tables[0] is tables[1] is tables[3]
    assert tables[4] is not tables[3]
    assert tables[4][:2] == tables[3]


def test_retire_wants_the_scheduled_batch_and_all_of_its_tokens() -> None:
    sim = Simulation(config())
    sim.add(request("a", 5))
    batch = sim.scheduler.schedule()
    with pytest.raises(EngineError, match="step 1 has not been retired"):
        sim.scheduler.schedule()
    with pytest.raises(EngineError, match="step 1 has no token for 'a'"):
        sim.scheduler.retire(batch, [])
    with pytest.raises(EngineError, match="step 7 is not the one"):
        sim.scheduler.retire(Batch(7, batch.sequences), [SampledToken("a", 1)])
    assert give(sim, batch) == ["a"]
    with pytest.raises(EngineError, match="step 1 is not the one"):
        sim.scheduler.retire(batch, [SampledToken("a", 1)])


def test_retire_returns_what_changed_in_the_order_of_the_batch() -> None:
    sim = Simulation(config(max_num_batched_tokens=12))
    sim.add(request("a", 3, 1, priority=1), request("b", 3), request("c", 10))
    batch = sim.scheduler.schedule()
    assert give(sim, batch) == ["a", "b"]  # the prompt of c is not complete
    batch = sim.scheduler.schedule()
    assert give(sim, batch) == ["b", "c"]


def test_counts() -> None:
    sim = Simulation(config())
    sim.add(request("a", 6, 3))
    sim.step()
    stats = sim.scheduler.stats
    assert (stats.steps, stats.prompt_tokens, stats.generated_tokens) == (1, 6, 1)
    assert (stats.blocks_used, stats.blocks_cached, stats.blocks_total) == (2, 0, 64)
    sim.drain()
    stats = sim.scheduler.stats
    assert (stats.steps, stats.generated_tokens) == (3, 3)
    assert (stats.blocks_used, stats.blocks_cached) == (0, 2)  # 6 + 2 tokens have KV


# ---- abort ----------------------------------------------------------------------------------


def test_abort_of_unknown_waiting_and_running_requests() -> None:
    sim = Simulation(config(max_num_seqs=1))
    sim.add(request("a", 3), request("b", 3))
    sim.step()
    assert sim.scheduler.abort("c") is None
    for name in "ab":
        aborted = sim.scheduler.abort(name)
        assert aborted is not None
        assert aborted.finish_reason is FinishReason.ABORT
    assert not sim.scheduler.has_unfinished
    assert (sim.scheduler.num_running, sim.scheduler.num_waiting) == (0, 0)
    sim.check_no_block_is_lost()


def test_blocks_of_a_running_step_are_kept_until_it_retires() -> None:
    sim = Simulation(config(enable_prefix_caching=False))
    sim.add(request("a", 8), request("b", 8))
    batch = sim.scheduler.schedule()
    sim.scheduler.abort("a")
    sim.scheduler.check_invariants()
    assert sim.scheduler.stats.blocks_used == 4
    assert ids(sim.retire(batch)) == ["b"]
    assert sim.scheduler.stats.blocks_used == 2


def test_an_id_can_come_back_while_its_aborted_step_runs() -> None:
    sim = Simulation(config())
    sim.add(request("a", 8))
    batch = sim.scheduler.schedule()
    sampled = sim.device.execute(batch)
    sim.scheduler.abort("a")
    sim.add(request("a", (1, 2, 3), 5))
    assert sim.scheduler.retire(batch, sampled) == []
    sim.drain()
    sim.check_answers()


# ---- the rest -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda s: s._running.reverse(), "order of their rank"),
        (lambda s: s._running.pop(), "but 0 tables name it"),
        (lambda s: s._sequences.pop("a"), r"\['a', 'b'\] run or wait, but \['b'\]"),
        (lambda s: setattr(s, "config", config(max_num_seqs=1)), "2 sequences run"),
        (lambda s: setattr(s._running[0], "status", SequenceStatus.WAITING), "'a' runs, but is"),
        (lambda s: setattr(s._running[0], "num_computed_tokens", 3), "which it does not own"),
        (lambda s: setattr(s._running[0], "num_computed_tokens", 13), "3 blocks for"),
        (lambda s: setattr(s._running[0], "prompt_token_ids", (0,) * 9), "of another prefix"),
        (lambda s: setattr(s._running[0], "prefix_depth", 1), "wrong depth|does not hold"),
    ],
)
def test_a_wrong_state_is_found(break_it, message: str) -> None:  # type: ignore[no-untyped-def]
    sim = Simulation(config())
    sim.add(request("a", 9), request("b", 9))
    sim.step()
    break_it(sim.scheduler)
    with pytest.raises(InvariantError, match=message):
        sim.scheduler.check_invariants()


def test_the_scheduler_needs_no_torch() -> None:
    code = "import engine.scheduler, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_undisturbed_run_is_no_constant() -> None:
    answers = {tuple(undisturbed(request(f"r{i}", 5, 6), config())) for i in range(20)}
    assert len(answers) > 15
