"""Every sampling parameter through the whole engine, with transformers as the oracle."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.core import Engine
from engine.errors import RequestError
from engine.request import FinishReason, Request, RequestOutput
from engine.sampling_params import SamplingParams
from kernels.philox import philox_uniform
from tests.support.cpu_engine import engine_of
from tests.support.golden import NEAR_TIE, Reference, near_ties
from tests.support.transformers_rules import OpenAIPenalties, apply, processors_of, warpers_of

EOS = 257
VOCAB = 260
PROMPTS = [tuple(b"The library opens at nine. " * n + b"Who?" * (n % 3)) for n in range(1, 6)]
PROMPTS += [tuple(b"Once"), (65,), tuple(b"abababab"), tuple(range(60, 100))]


def answers(engine: Engine, requests: Sequence[Request]) -> list[RequestOutput]:
    found = {o.request_id: o for o in engine.generate(requests)}
    return [found[r.request_id] for r in requests]


def generated(tiny: Any, prompt: Sequence[int], count: int, **rules: Any) -> Reference:
    """A greedy answer of `generate`, its margins those of the processed scores."""
    ids = torch.tensor([list(prompt)])
    done = tiny.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False,
        pad_token_id=0, output_scores=True, return_dict_in_generate=True,
        **{"eos_token_id": None, **rules},
    )  # fmt: skip
    best = [scores[0].topk(2).values for scores in done.scores]
    return Reference(
        tuple(done.sequences[0, len(prompt) :].tolist()),
        tuple((two[0] - two[1]).item() for two in best),
    )


COUNT = 16
BANNED = ((125, 249), (101,), (249, 145, 249), (65, 66))
ALLOWED = tuple(range(64, 128))
# By parameter: what we are asked, and what `generate` is.
GREEDY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "repetition_penalty": ({"repetition_penalty": 1.4}, {"repetition_penalty": 1.4}),
    "logit_bias": (
        {"logit_bias": ((70, 3.0), (80, -5.0), (90, 2.5))},
        {"sequence_bias": [[[70], 3.0], [[80], -5.0], [[90], 2.5]]},
    ),
    "bad_words_ids": (
        {"bad_words_ids": BANNED},
        {"bad_words_ids": [list(word) for word in BANNED]},
    ),
    "allowed_token_ids": (
        {"allowed_token_ids": ALLOWED},
        {"prefix_allowed_tokens_fn": lambda row, ids: list(ALLOWED)},
    ),
    "all": (
        {
            "repetition_penalty": 1.2, "logit_bias": ((70, 2.0), (71, 1.0)),
            "bad_words_ids": BANNED, "allowed_token_ids": ALLOWED,
        },
        {
            "repetition_penalty": 1.2, "sequence_bias": [[[70], 2.0], [[71], 1.0]],
            "bad_words_ids": [list(word) for word in BANNED],
            "prefix_allowed_tokens_fn": lambda row, ids: list(ALLOWED),
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GREEDY)
def test_greedy_answers_are_those_of_generate(
    folder: Path, tiny: Any, name: str, record_property: Any
) -> None:
    ours, theirs = GREEDY[name]
    params = SamplingParams(max_tokens=COUNT, ignore_eos=True, **ours)
    found = answers(engine_of(folder), [Request(str(i), p, params) for i, p in enumerate(PROMPTS)])
    expected = [generated(tiny, prompt, COUNT, **theirs) for prompt in PROMPTS]
    record_property("near_ties", near_ties(expected, [o.token_ids for o in found]))
    plain = [generated(tiny, prompt, COUNT) for prompt in PROMPTS]
    assert [r.token_ids for r in plain] != [r.token_ids for r in expected]


@pytest.mark.parametrize(("frequency", "presence"), [(0.8, 0.0), (0.0, 1.5), (-0.5, 2.0)])
def test_openai_penalties(
    folder: Path, tiny: Any, frequency: float, presence: float, record_property: Any
) -> None:
    params = SamplingParams(
        max_tokens=COUNT, ignore_eos=True, frequency_penalty=frequency, presence_penalty=presence
    )
    found = answers(engine_of(folder), [Request(str(i), p, params) for i, p in enumerate(PROMPTS)])
    expected = [
        generated(
            tiny, prompt, COUNT,
            logits_processor=[OpenAIPenalties(len(prompt), frequency, presence)],
        )
        for prompt in PROMPTS
    ]  # fmt: skip
    record_property("near_ties", near_ties(expected, [o.token_ids for o in found]))


def test_min_tokens(folder: Path, tiny: Any, record_property: Any) -> None:
    """What would end the answers soon is what they would have as their third token."""
    engine = engine_of(folder)
    free = SamplingParams(max_tokens=COUNT, ignore_eos=True)
    plain = answers(engine, [Request(str(i), p, free) for i, p in enumerate(PROMPTS)])
    stops = [output.token_ids[2] for output in plain]
    asked = [
        SamplingParams(max_tokens=COUNT, ignore_eos=True, stop_token_ids=(stop,), min_tokens=7)
        for stop in stops
    ]
    requests = [Request(str(i), p, asked[i]) for i, p in enumerate(PROMPTS)]
    found = answers(engine, requests)
    expected = [
        generated(tiny, prompt, COUNT, eos_token_id=[stop], min_new_tokens=7)
        for prompt, stop in zip(PROMPTS, stops, strict=True)
    ]
    record_property("near_ties", near_ties(expected, [o.token_ids for o in found]))
    for output, stop in zip(found, stops, strict=True):
        assert output.completion_tokens >= 7
        assert stop not in output.token_ids[:7]


def random_params(chance: random.Random) -> SamplingParams:
    """Some parameters set and most not, as rows of different people have them."""

    def maybe(value: Any, neutral: Any) -> Any:
        return value if chance.random() < 0.3 else neutral

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(chance.sample(range(256), count))

    return SamplingParams(
        max_tokens=chance.randint(1, 10),
        temperature=chance.choice((0.0, 0.0, 0.7, 1.0, 1.6)),
        top_k=maybe(chance.randint(1, 30), 0),
        top_p=maybe(chance.uniform(0.3, 1.0), 1.0),
        min_p=maybe(chance.uniform(0.0, 0.5), 0.0),
        seed=chance.randrange(2**63),
        repetition_penalty=maybe(chance.uniform(0.8, 1.6), 1.0),
        presence_penalty=maybe(chance.uniform(-2, 2), 0.0),
        frequency_penalty=maybe(chance.uniform(-2, 2), 0.0),
        logit_bias=maybe(tuple((t, chance.uniform(-9, 9)) for t in tokens(5)), ()),
        allowed_token_ids=maybe(tokens(100), None),
        bad_words_ids=maybe(tuple(tokens(n) for n in (1, 1, 2, 2, 2, 3)), ()),
        min_tokens=maybe(1, 0),
        stop_token_ids=maybe(tokens(10), ()),
        ignore_eos=chance.random() < 0.5,
        logprobs=maybe(2, None),
    )


@pytest.fixture(scope="module")
def mixed() -> list[Request]:
    chance = random.Random(7)
    return [
        Request(
            str(i), chance.choice(PROMPTS)[: chance.randint(1, 60)], random_params(chance),
            sample_index=chance.randrange(3),
        )
        for i in range(500)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def together(folder: Path, mixed: list[Request]) -> list[RequestOutput]:
    engine = engine_of(folder, num_blocks=1024, max_num_seqs=500, max_num_batched_tokens=4096)
    return answers(engine, mixed)


def test_500_mixed_requests_follow_transformers(
    tiny: Any, mixed: list[Request], together: list[RequestOutput]
) -> None:
    """Each token of ours is the one that transformers' scores lead to, after the tokens before it.

    Excused is only what rounding decides: greedy tokens where the two best scores are nearer than
    `NEAR_TIE`, and sampled ones where the random number is as near to the border of two tokens.
    """
    excused = 0
    for request, output in zip(mixed, together, strict=True):
        with torch.inference_mode():
            logits = tiny(torch.tensor([request.token_ids + output.token_ids])).logits[0]
        prompt = len(request.token_ids)
        processors = processors_of(request.params, prompt, [EOS], VOCAB)
        for at, token in enumerate(output.token_ids):
            before = request.token_ids + output.token_ids[:at]
            scores = apply(processors, before, logits[prompt + at - 1])
            excused += check_token(request, scores, prompt + at, token)
        check_end(request.params, output)
    assert excused < 10


def check_token(request: Request, scores: torch.Tensor, position: int, token: int) -> bool:
    """Whether a token that differs from the oracle's is excused."""
    params = request.params
    if params.temperature == 0:
        best = scores.topk(2)
        if token == best.indices[0]:
            return False
        assert best.values[0] - scores[token] < NEAR_TIE, request
        return True
    cumulative = apply(warpers_of(params), [0], scores).softmax(-1).double().cumsum(-1)
    seed, place, index = (torch.tensor([n]) for n in (params.seed, position, request.sample_index))
    target = philox_uniform(seed, place, index) * cumulative[-1]
    if token == torch.searchsorted(cumulative, target, right=True):
        return False
    borders = cumulative[max(0, token - 1) : token + 1]
    assert (borders - target).abs().min() < NEAR_TIE, request
    return True


def check_end(params: SamplingParams, output: RequestOutput) -> None:
    ending = {*params.stop_token_ids, *(() if params.ignore_eos else (EOS,))}
    if output.finish_reason is FinishReason.STOP:
        assert output.token_ids[-1] in ending
        assert output.completion_tokens > params.min_tokens
    else:
        assert output.finish_reason is FinishReason.LENGTH
        assert output.completion_tokens == params.max_tokens
        assert output.token_ids[-1] not in ending
    assert not ending & set(output.token_ids[:-1])


def test_500_mixed_requests_answer_alone_as_they_do_together(
    folder: Path, mixed: list[Request], together: list[RequestOutput]
) -> None:
    engine = engine_of(folder)
    for request, output in zip(mixed, together, strict=True):
        (alone,) = engine.generate([request])
        assert alone.token_ids == output.token_ids, request
        assert alone.text == output.text


@pytest.mark.parametrize("prefix_cache", [True, False], ids=["cache", "no-cache"])
def test_sequences_that_are_computed_again_keep_their_counts(
    folder: Path, prefix_cache: bool
) -> None:
    asked = {
        "max_tokens": 40, "ignore_eos": True, "stop_token_ids": (1 << 30,), "min_tokens": 30,
        "repetition_penalty": 1.3, "frequency_penalty": 1.0, "bad_words_ids": BANNED,
    }  # fmt: skip
    requests = [
        Request(f"{i}", prompt, SamplingParams(temperature=float(i % 2), seed=i, **asked))
        for i, prompt in enumerate(PROMPTS)
    ]
    expected = answers(engine_of(folder), requests)
    small = engine_of(
        folder, num_blocks=40, block_size=8, max_model_len=320, max_num_batched_tokens=48,
        enable_prefix_caching=prefix_cache,
    )  # fmt: skip
    found = answers(small, requests)
    assert small.stats.preemptions > 0
    assert [o.token_ids for o in found] == [o.token_ids for o in expected]


def test_log_probabilities_are_of_the_models_own_logits(folder: Path, tiny: Any) -> None:
    params = SamplingParams(
        max_tokens=8, ignore_eos=True, logprobs=3, logit_bias=((70, 50.0),), repetition_penalty=2.0
    )
    (output,) = engine_of(folder).generate([Request("r", PROMPTS[0], params)])
    with torch.inference_mode():
        logits = tiny(torch.tensor([PROMPTS[0] + output.token_ids])).logits[0]
    expected = logits.log_softmax(-1)[len(PROMPTS[0]) - 1 : -1]
    assert output.logprobs is not None
    assert output.token_ids == (70,) * 8
    for row, told in zip(expected, output.logprobs, strict=True):
        assert told.logprob == pytest.approx(row[told.token_id].item(), abs=1e-4)
        assert told.top[0].logprob == pytest.approx(row.max().item(), abs=1e-4)
        assert told.top[0].token_id != 70


def test_a_text_that_is_banned_is_not_written(folder: Path) -> None:
    engine = engine_of(folder)
    free = SamplingParams(max_tokens=40, ignore_eos=True, temperature=1.0, seed=1)
    (plain,) = engine.generate([Request("r", PROMPTS[0], free)])
    word = next(w for n in range(5, 30) if "\ufffd" not in (w := plain.text[n : n + 2]))
    asked = SamplingParams(
        max_tokens=40, ignore_eos=True, temperature=1.0, seed=1, bad_words=(word,)
    )
    (output,) = engine.generate([Request("r", PROMPTS[0], asked)])
    assert word in plain.text
    assert word not in output.text


def test_a_row_with_no_token_left_fails_alone(folder: Path) -> None:
    engine = engine_of(folder)
    good = Request("good", PROMPTS[1], SamplingParams(max_tokens=6, ignore_eos=True))
    (expected,) = engine.generate([good])
    pairs = tuple((a, b) for a in (70, 71) for b in (70, 71))
    asked = SamplingParams(
        max_tokens=6, allowed_token_ids=(70, 71), bad_words_ids=pairs, temperature=1.0
    )
    bad, found = answers(engine, [Request("bad", PROMPTS[0], asked), good])
    assert (bad.finish_reason, bad.error_code) == (FinishReason.ERROR, "no_token_left")
    assert bad.completion_tokens == 1
    assert bad.error_message is not None
    assert "allow more of them" in bad.error_message
    assert (found.token_ids, found.text) == (expected.token_ids, expected.text)
    assert engine.stats.blocks_used == 0


def test_a_token_that_the_model_does_not_have_is_that_requests_error(folder: Path) -> None:
    engine = engine_of(folder)
    with pytest.raises(RequestError, match="the model's are 0 to 259") as caught:
        engine.add(Request("r", (1,), SamplingParams(logit_bias=((260, 1.0),))))
    assert caught.value.field == "logit_bias"
    assert not engine.has_unfinished


def test_stop_strings_are_kept_where_asked_and_wait_for_min_tokens(folder: Path) -> None:
    engine = engine_of(folder)

    def answer(**asked: Any) -> RequestOutput:
        params = SamplingParams(max_tokens=30, ignore_eos=True, temperature=1.0, seed=3, **asked)
        (output,) = engine.generate([Request("r", PROMPTS[5], params)])
        return output

    whole = answer()
    stop = next(
        w for n in range(4, 20) if "\ufffd" not in (w := whole.text[n : n + 2]) and len(w) == 2
    )
    cut = answer(stop=(stop,))
    assert cut.finish_reason is FinishReason.STOP
    kept = answer(stop=(stop,), include_stop_str_in_output=True)
    assert kept.text == cut.text + stop
    assert kept.token_ids == cut.token_ids == whole.token_ids[: cut.completion_tokens]
    late = answer(stop=(stop,), min_tokens=cut.completion_tokens)
    assert late.text.startswith(kept.text)
    assert late.completion_tokens > cut.completion_tokens
