"""The engine's own loop: stop strings, refusals, aborts and what outputs say."""

from __future__ import annotations

import pytest

from engine.config import EngineConfig
from engine.core import Engine
from engine.errors import ConfigError, RequestError
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
    assert second.cached_tokens == (len(PROMPT) - 1) // 16 * 16
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
    from engine.batch import SampledToken

    execute = engine.runner.execute

    def poisoned(batch):
        return [
            SampledToken(t.request_id, -1, nan_logits=True) if t.request_id == "bad" else t
            for t in execute(batch)
        ]

    monkeypatch.setattr(engine.runner, "execute", poisoned)
    rules = SamplingParams(5, stop=("zz",), ignore_eos=True)
    outputs = engine.generate([Request("bad", PROMPT, rules), Request("good", PROMPT, rules)])
    found = {o.request_id: o for o in outputs}
    assert found["bad"].finish_reason is FinishReason.ERROR
    assert found["bad"].error_code == "nan_logits"
    assert found["good"].error_code is None
    assert found["good"].completion_tokens == 5


def test_a_length_beyond_the_model_is_refused(folder):
    with pytest.raises(ConfigError, match="2048"):
        Engine(EngineConfig(str(folder), num_blocks=8, max_model_len=4096))
