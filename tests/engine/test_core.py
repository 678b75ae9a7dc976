"""The engine's own loop: stop strings, refusals, aborts and what outputs say."""

from __future__ import annotations

import pytest

from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import ConfigError, RequestError
from engine.messages import STEP_BUCKETS
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from tests.support.tiny_model import build_tiny_model

PROMPT = tuple(b"The first lines of a story, at least two blocks of sixteen tokens long")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return build_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def engine(folder):
    return Engine(EngineConfig(str(folder), num_blocks=128, check_invariants=True))


def answer(engine, prompt=PROMPT, **params):
    rules = SamplingParams(**{"max_tokens": 12, "ignore_eos": True, **params})
    (output,) = engine.generate([Request("r", prompt, rules)])
    return output


def test_an_output_counts_its_tokens(engine):
    first, second = answer(engine), answer(engine)
    assert first.finish_reason is FinishReason.LENGTH
    assert len(first.token_ids) == first.completion_tokens == 12
    assert (first.prompt_tokens, first.cached_tokens) == (len(PROMPT), 0)
    assert second.cached_tokens == len(PROMPT) - 1
    assert second.token_ids == first.token_ids


def test_a_stop_string_ends_the_text_before_it(engine):
    whole = answer(engine).text
    stop = whole[3:5]
    output = answer(engine, stop=(stop,))
    assert output.finish_reason is FinishReason.STOP
    assert output.text == whole[: whole.index(stop)]
    assert output.completion_tokens < 12
    assert not engine.has_unfinished


def test_a_stop_string_in_the_last_token_counts(engine):
    whole = answer(engine)
    at = next(
        n for n in range(4, 13) if answer(engine, max_tokens=n).text[-1:] not in ("", "\ufffd")
    )
    text = answer(engine, max_tokens=at).text
    output = answer(engine, max_tokens=at, stop=(text[-1],))
    assert output.finish_reason is FinishReason.STOP
    assert whole.text.startswith(output.text)


def test_a_stop_id_ends_the_answer_with_it(engine):
    tokens = answer(engine).token_ids
    at = next(i for i, t in enumerate(tokens) if i > 1 and t not in tokens[:i])
    output = answer(engine, stop_token_ids=(tokens[at],))
    assert output.token_ids == tokens[: at + 1]
    assert output.finish_reason is FinishReason.STOP


def test_sampled_answers_depend_on_the_seed_alone(engine):
    def sampled(seed, companions):
        rules = SamplingParams(12, temperature=1.0, seed=seed, ignore_eos=True)
        others = [Request(f"o{i}", PROMPT[i:], rules) for i in range(companions)]
        found = engine.generate([Request("r", PROMPT, rules), *others])
        return next(o.token_ids for o in found if o.request_id == "r")

    assert sampled(5, 0) == sampled(5, 6)
    assert len({sampled(seed, 0) for seed in range(8)}) > 1


def samples(engine, indices, prompt=PROMPT, companions=0, **params):
    """Answers to one prompt and seed, by sample index."""
    rules = SamplingParams(
        **{"max_tokens": 12, "temperature": 1.0, "seed": 5, "ignore_eos": True, **params}
    )
    others = [Request(f"o{i}", prompt[i + 1 :], rules) for i in range(companions)]
    asked = [Request(f"r{i}", prompt, rules, sample_index=i) for i in indices]
    found = {o.request_id: o for o in engine.generate([*others, *asked])}
    return {i: found[f"r{i}"] for i in indices}


def test_samples_of_one_prompt_differ_and_come_again(folder, engine):
    together = samples(engine, range(6))
    assert len({o.token_ids for o in together.values()}) == 6
    rules = SamplingParams(12, temperature=1.0, seed=5, ignore_eos=True)
    (plain,) = engine.generate([Request("plain", PROMPT, rules)])
    assert together[0].token_ids == plain.token_ids
    cold = Engine(EngineConfig(str(folder), num_blocks=128, enable_prefix_caching=False))
    for index in range(6):
        alone = samples(cold, [index])[index]
        assert alone.token_ids == together[index].token_ids
    again = samples(engine, [4, 1], companions=5)
    assert {i: o.token_ids for i, o in again.items()} == {i: together[i].token_ids for i in (4, 1)}


def test_samples_of_one_prompt_share_its_blocks(engine):
    found = samples(engine, range(5))
    shared = (len(PROMPT) - 1) // 16 * 16
    assert sorted(o.cached_tokens for o in found.values()) == [0, *[shared] * 4]
    assert engine.stats.cached_tokens == 4 * shared
    assert engine.stats.prompt_tokens == 5 * len(PROMPT)


def test_samples_that_are_preempted_are_the_same(folder, engine):
    expected = samples(engine, range(6), max_tokens=60, stop_token_ids=(1 << 30,))
    small = Engine(
        EngineConfig(str(folder), num_blocks=18, max_model_len=200, check_invariants=True)
    )
    found = samples(small, range(6), max_tokens=60, stop_token_ids=(1 << 30,))
    assert small.stats.preemptions > 0
    assert {i: o.token_ids for i, o in found.items()} == {
        i: o.token_ids for i, o in expected.items()
    }


def test_stats_say_what_runs_and_what_was_done(engine):
    empty = engine.stats
    assert (empty.running, empty.waiting, empty.steps, empty.blocks_total) == (0, 0, 0, 128)
    assert empty.step_buckets == (0,) * (len(STEP_BUCKETS) + 1)
    for i in range(300):
        engine.add(Request(f"r{i}", PROMPT[i % 7 :], SamplingParams(3, ignore_eos=True)))
    assert engine.stats.waiting == 300
    engine.step()
    busy = engine.stats
    assert busy.running > 0
    assert busy.running + busy.waiting == 300
    assert busy.blocks_used > 0
    while engine.has_unfinished:
        engine.step()
    done = engine.stats
    assert (done.running, done.waiting, done.blocks_used) == (0, 0, 0)
    assert done.generated_tokens == 900
    assert done.prompt_tokens == sum(len(PROMPT) - i % 7 for i in range(300))
    assert sum(done.step_buckets) == done.steps > busy.steps
    assert done.step_seconds > busy.step_seconds > 0
    engine.step()  # nothing to do is no step
    assert engine.stats == done


@pytest.mark.parametrize(
    ("prompt", "code"),
    [((), "empty_prompt"), ((1,) * 5000, "prompt_too_long"), ((1, 999_999), "unknown_token"),
     ((-1,), "unknown_token")],
)  # fmt: skip
def test_what_can_never_be_served_is_refused_at_once(engine, prompt, code):
    with pytest.raises(RequestError) as caught:
        engine.add(Request("r", prompt))
    assert caught.value.code == code
    assert not engine.has_unfinished


def test_an_aborted_request_gives_no_output(engine):
    engine.add(Request("a", PROMPT, SamplingParams(50, stop=("never",), ignore_eos=True)))
    engine.add(Request("b", PROMPT, SamplingParams(5, ignore_eos=True)))
    engine.step()
    engine.abort("a")
    engine.abort("unknown")
    found = []
    while engine.has_unfinished:
        found += engine.step()
    assert [o.request_id for o in found] == ["b"]
    assert engine.stats.blocks_used == 0


def test_nan_logits_are_that_rows_error(engine, monkeypatch):
    from engine.batch import NAN_LOGITS, SampledToken

    execute = engine.runner.execute

    def poisoned(batch):
        return [
            SampledToken(t.request_id, -1, NAN_LOGITS) if t.request_id == "bad" else t
            for t in execute(batch)
        ]

    monkeypatch.setattr(engine.runner, "execute", poisoned)
    rules = SamplingParams(5, stop=("zz",), ignore_eos=True)
    outputs = engine.generate([Request("bad", PROMPT, rules), Request("good", PROMPT, rules)])
    found = {o.request_id: o for o in outputs}
    assert found["bad"].finish_reason is FinishReason.ERROR
    assert found["bad"].error_code == "nan_logits"
    assert found["bad"].prompt_tokens == len(PROMPT)  # it was computed
    assert found["good"].error_code is None
    assert found["good"].completion_tokens == 5


def test_a_length_beyond_the_model_is_refused(folder):
    with pytest.raises(ConfigError, match="2048"):
        Engine(EngineConfig(str(folder), num_blocks=8, max_model_len=4096))
