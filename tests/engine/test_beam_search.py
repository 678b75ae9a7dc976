"""Beam search itself, on candidates made by hand; equality with transformers is tested in
`test_beam_golden.py`."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import beam_search
from engine.batch import SampledLogprobs
from engine.beam_search import BeamSearch, Hypothesis, candidates_per_beam
from engine.errors import RequestError
from engine.sampling_params import SamplingParams

pytestmark = pytest.mark.quick

END = 9


def search(width: int = 2, max_tokens: int = 8, stop: frozenset[int] | None = None, **params: Any):  # type: ignore[no-untyped-def]
    rules = SamplingParams(num_beams=width, **params)
    return BeamSearch(rules, frozenset({END}) if stop is None else stop, max_tokens)


def likely(*pairs: tuple[int, float]) -> SampledLogprobs:
    return SampledLogprobs(
        array("f", [0.0, *(p for _, p in pairs)]), array("i", [t for t, _ in pairs])
    )


def running(s: BeamSearch) -> list[tuple[tuple[int, ...], float]]:
    return [(h.token_ids, h.score) for h in s.running]


def test_the_best_of_all_beams_go_on() -> None:
    s = search()
    first = s.advance([likely((1, -1.0), (2, -1.5), (3, -4.0), (4, -5.0))])
    assert [(c.beam, c.token_id) for c in first] == [(0, 1), (0, 2)]
    second = s.advance(
        [
            likely((5, -2.0), (6, -3.0), (7, -4.0), (8, -5.0)),
            likely((5, -0.5), (6, -0.75), (7, -4.0), (8, -5.0)),
        ]
    )
    assert [(c.beam, c.token_id) for c in second] == [(1, 5), (1, 6)]
    assert running(s) == [((2, 5), -2.0), ((2, 6), -2.25)]


def test_of_equal_candidates_the_first_beam_and_the_lowest_token_go_on() -> None:
    s = search(3)
    s.advance([likely((4, -1.0), (2, -1.0), (7, -1.0), (1, -2.0), (3, -2.0), (5, -2.0))])
    assert [tokens for tokens, _ in running(s)] == [(2,), (4,), (7,)]
    same = likely((8, -1.0), (6, -1.0), (1, -1.0), (2, -2.0), (3, -2.0), (4, -2.0))
    s.advance([same, same, same])
    assert [tokens for tokens, _ in running(s)] == [(2, 1), (2, 6), (2, 8)]


def test_only_the_first_candidates_may_end_an_answer() -> None:
    s = search()
    s.advance([likely((1, -1.0), (2, -2.0), (END, -2.5), (3, -3.0))])
    assert not s.finished  # it came third
    s.advance([likely((END, -0.5), (1, -1.0), (2, -4.0), (3, -5.0))] * 2)
    assert [(h.token_ids, h.score) for h in s.finished] == [((1, END), -0.75)]
    assert running(s) == [((1, 1), -2.0), ((2, 1), -3.0)]


@pytest.mark.parametrize(
    ("early_stopping", "length_penalty", "done"),
    [
        (True, 1.0, True),
        (False, 1.0, True),  # -1.5 is no better than -1.0
        (False, 0.0, True),
        ("never", 0.0, True),
        ("never", -1.0, True),
        ("never", 1.0, False),  # -1.5 / 16 would be better than -1.0
    ],
)
def test_when_as_many_have_ended_as_there_are_beams(
    early_stopping: bool | str, length_penalty: float, done: bool
) -> None:
    s = search(
        early_stopping=early_stopping, length_penalty=length_penalty, max_tokens=16,
        stop=frozenset({8, END}),
    )  # fmt: skip
    s.advance([likely((8, -0.5), (END, -1.0), (1, -1.5), (2, -1.6), (3, -3.0), (4, -4.0))])
    assert [h.score for h in s.finished] == [-0.5, -1.0]
    assert s.done == done


@pytest.mark.parametrize("early_stopping", [False, True, "never"])
def test_a_running_beam_that_is_better_than_what_has_ended(early_stopping: bool | str) -> None:
    s = search(early_stopping=early_stopping)
    s.advance([likely((1, -0.5), (END, -2.0), (2, -2.5), (3, -3.0))])
    assert not s.done  # one is missing
    few = likely((1, -5.0), (2, -6.0), (3, -7.0), (4, -8.0))
    s.advance([likely((1, -0.25), (END, -1.5), (2, -3.0), (3, -4.0)), few])
    assert [h.score for h in s.finished] == [-1.0, -2.0]
    assert s.done == (early_stopping is True)  # -0.75 / 2 is better than -2.0


def test_at_the_length_limit_all_beams_end() -> None:
    s = search(3, max_tokens=1)
    going_on = s.advance(
        [likely((1, -1.0), (2, -1.5), (END, -4.0), (4, -5.0), (5, -6.0), (6, -7.0))]
    )
    assert s.done
    assert going_on == []
    assert [h.token_ids for h in s.finished] == [(1,), (2,), (END,)]


def test_an_answer_that_ended_is_kept_only_among_the_best() -> None:
    s = search(2, length_penalty=0.0, max_tokens=3)
    s.advance([likely((END, -1.0), (1, -1.25), (2, -1.5), (3, -9.0))])
    s.advance([likely((END, -0.5), (1, -1.0), (2, -8.0), (3, -9.0)),
               likely((END, -0.125), (1, -1.0), (2, -8.0), (3, -9.0))])  # fmt: skip
    assert [(h.token_ids, h.score) for h in s.finished] == [((END,), -1.0), ((2, END), -1.625)]
    assert s.done


def test_as_many_candidates_as_leave_enough_to_go_on() -> None:
    assert candidates_per_beam(4, 0) == candidates_per_beam(4, 1) == 8
    assert candidates_per_beam(4, 3) == 16


@pytest.mark.parametrize(
    ("params", "field", "message"),
    [
        ({"num_beams": 0}, "num_beams", "from 1 to 64"),
        ({"num_beams": 65}, "num_beams", "from 1 to 64"),
        ({"num_beams": 2, "num_return_sequences": 3}, "n", "n is 3, but num_beams is 2"),
        ({"num_return_sequences": 2}, "n", "num_beams is 1"),
        ({"num_beams": 2, "length_penalty": float("nan")}, "length_penalty", "from -10 to 10"),
        ({"num_beams": 2, "length_penalty": 11.0}, "length_penalty", "from -10 to 10"),
        ({"num_beams": 2, "early_stopping": "always"}, "early_stopping", '"never"'),
        ({"num_beams": 2, "early_stopping": 1}, "early_stopping", '"never"'),
        ({"length_penalty": 2.0}, "length_penalty", "set num_beams over 1"),
        ({"early_stopping": True}, "early_stopping", "set num_beams over 1"),
        ({"num_beams": 2, "temperature": 0.5}, "temperature", "does not go with beam search"),
        ({"num_beams": 2, "stop": ("x",)}, "stop", "does not go with beam search"),
        ({"num_beams": 2, "logprobs": 0}, "logprobs", "does not go with beam search"),
    ],
)
def test_what_no_search_can_have_is_refused(
    params: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        SamplingParams(**params)
    assert (caught.value.code, caught.value.field) == ("invalid_parameter", field)


@given(st.data(), st.integers(1, 4), st.integers(0, 3), st.integers(1, 4))
def test_candidates_come_in_the_order_of_their_scores(
    data: st.DataObject, width: int, stops: int, beams: int
) -> None:
    """And of equal scores in that of beams and tokens; only as many as matter are looked at."""
    rules = SamplingParams(num_beams=max(2, width))
    s = BeamSearch(rules, frozenset(range(stops)), 8)
    s.running = [Hypothesis((), -data.draw(st.integers(0, 8)) / 4) for _ in range(beams)]
    found = []
    for _ in range(beams):
        scores = data.draw(st.lists(st.integers(0, 12), min_size=20, max_size=20))
        best = sorted(range(20), key=lambda token: (scores[token], token))[: s.num_candidates]
        found.append(likely(*((token, -scores[token] / 4) for token in best)))
    ranked = sorted(
        (-(score + s.running[beam].score), beam, token)
        for beam, logprobs in enumerate(found)
        for token, score in zip(logprobs.top_ids, logprobs.values[1:], strict=True)
    )[: s.num_candidates]
    going_on = [c for c in ranked if c[2] >= stops][: rules.num_beams]
    ended = [c for c in ranked[: rules.num_beams] if c[2] < stops]
    candidates = s.advance(found)
    assert s.done or [(-c.score, c.beam, c.token_id) for c in candidates] == going_on
    assert sorted(h.token_ids[0] for h in s.finished) == sorted(token for _, _, token in ended)


def test_many_stop_ids_cost_a_search_nothing_that_it_does_not_meet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many more candidates are there for each of them, in case that all are likely."""
    looked: list[float] = []
    rounded = beam_search._float32
    monkeypatch.setattr(beam_search, "_float32", lambda x: looked.append(x) or rounded(x))
    s = search(8, stop=frozenset(range(5000, 5500)))
    assert s.num_candidates == 501 * 8
    found = likely(*((token, -float(token)) for token in range(s.num_candidates)))
    s.advance([found])
    looked.clear()
    assert len(s.advance([found] * 8)) == 8
    assert len(looked) <= 8 * (1 + 8 + 2)
