"""What `worker.estimate_rows` counts of rows, against the engine's own scheduler."""

from __future__ import annotations

from itertools import pairwise

import pytest

from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.task import Embed, Score
from jobs.records import RowErrorInfo, RowResult
from worker.estimate_rows import RowTally, SharedPrefixes, Sizes
from worker.requests import Prepared, PreparedRow

pytestmark = pytest.mark.quick

BLOCK = 8


def request(tokens: range | list[int], name: str = "r", **more: object) -> Request:
    return Request(name, tuple(tokens), **more)  # type: ignore[arg-type]


def tally(**more: object) -> RowTally:
    settings = {"max_model_len": 100, "block_size": BLOCK, "max_num_seqs": 2, **more}
    return RowTally(**settings)  # type: ignore[arg-type]


def row(index: int, *requests: Request) -> PreparedRow:
    return PreparedRow(index, 1, requests)


def add(counts: RowTally, *rows: PreparedRow) -> None:
    counts.add(Prepared(rows, ()), {r.row_index: r.row_index + 1 for r in rows})


# ---- shared prefixes


def test_a_prefix_is_shared_as_the_engine_shares_it() -> None:
    prefixes = SharedPrefixes(BLOCK)
    first = list(range(30))
    assert prefixes.cached(request(first)) == 0
    # The last token is computed in any case: 3 full blocks, and 5 tokens of the fourth.
    assert prefixes.cached(request(first)) == 24
    assert prefixes.cached(request([*first[:16], 99, 98, 97, 96, 95, 94, 93, 92, 91])) == 16
    # Of a block that begins the same, those tokens are copied.
    assert prefixes.cached(request([*first[:20], 50, 51, 52, 53, 54, 55])) == 20
    assert prefixes.cached(request([77, *first])) == 0


def test_what_was_used_longest_ago_leaves_the_tree() -> None:
    prefixes = SharedPrefixes(BLOCK, num_blocks=4)
    old, new = request(range(17)), request(range(100, 117))
    assert [prefixes.cached(r) for r in (old, old)] == [0, 16]
    assert [prefixes.cached(r) for r in (new, new)] == [0, 16]
    assert prefixes.cached(old) < 16
    assert prefixes.cached(request(range(1000))) == 0  # longer than the whole tree


# ---- rows


def test_prompts_answers_and_blocks_of_generated_rows() -> None:
    counts = tally()
    params = SamplingParams(max_tokens=10)
    add(counts, *(row(i, request(range(n), params=params)) for i, n in enumerate((8, 20, 95))))

    found = counts.as_json()

    assert found["prompt_tokens"] == {"total": 123, "median": 20, "p95": 95, "max": 95}
    assert found["completion_tokens"] == 10 + 10 + 5
    assert found["cut_short"] == 1
    assert found["shared_tokens"] == 8 + 16  # full blocks; the last 4 tokens of the second are none
    # The last token of an answer is not stored: 17, 29 and 99 tokens.
    assert [counts.blocks.quantile(share) for share in (0.1, 0.5, 1)] == [3, 4, 13]
    assert sorted(counts.largest) == [4, 13]
    assert counts.blocks.over(4) == 1


def test_without_a_prefix_cache_nothing_is_shared() -> None:
    counts = tally(shares=False)
    add(counts, row(0, request(range(20))), row(1, request(range(20))))
    assert counts.cached_tokens == 0


def test_samples_share_their_prompt() -> None:
    counts = tally()
    params = SamplingParams(max_tokens=4, seed=1)
    samples = [request(range(20), f"r{i}", params=params, sample_index=i) for i in range(3)]
    add(counts, row(0, *samples))

    assert (counts.prompt_tokens, counts.completion_tokens) == (20, 12)
    assert counts.cached_tokens == 0  # what the first one computed was computed
    assert counts.blocks.largest == 2 + 3 * 1


def test_beams_hold_blocks_of_their_own() -> None:
    counts = tally()
    params = SamplingParams(max_tokens=4, num_beams=3, num_return_sequences=2, temperature=0)
    add(counts, row(0, request(range(16), params=params)))
    assert counts.completion_tokens == 8
    assert counts.blocks.largest == 2 + 3 * 1


def test_continuations_share_their_context() -> None:
    counts = tally()
    scored = [request([*range(17), 90 + i], f"r{i}", task=Score(17)) for i in range(2)]
    add(counts, row(0, *scored))
    assert (counts.prompt_tokens, counts.completion_tokens) == (19, 0)
    # The token before the last is the last that is read, and it is in a block of its own.
    assert counts.blocks.largest == 2 + 2 * 1


def test_embedded_texts_are_answered_without_tokens() -> None:
    counts = tally()
    add(counts, row(0, request(range(16), task=Embed())))
    assert (counts.prompt_tokens, counts.completion_tokens, counts.cut) == (16, 0, 0)
    assert counts.blocks.largest == 2


def test_rows_that_an_engine_would_refuse_are_no_rows() -> None:
    counts = tally()
    error = RowErrorInfo("chat_template_refused", "no", 3)
    counts.add(Prepared((), (RowResult(2, finish_reason="error", error=error),)), {})
    add(counts, row(0, request(range(100))), row(1, request([])), *(row(9 + i, request(range(100)))
        for i in range(5)))  # fmt: skip

    found = counts.as_json()

    assert (found["rows"], found["refused"]) == (0, 8)
    assert found["codes"] == {
        "chat_template_refused": 1, "prompt_too_long": 6, "empty_prompt": 1,
    }  # fmt: skip
    assert [(e["line"], e["code"]) for e in found["errors"]] == [
        (1, "prompt_too_long"), (2, "empty_prompt"), (3, "chat_template_refused"),
    ]  # fmt: skip
    assert found["prompt_tokens"] == {"total": 0, "median": 0, "p95": 0, "max": 0}


def test_sizes_are_counted_and_not_kept() -> None:
    sizes = Sizes()
    for size in range(1, 101):
        sizes.add(size)
    assert [sizes.quantile(share) for share in (0.5, 0.95, 1)] == [50, 95, 100]
    assert all(a <= b for a, b in pairwise(sizes.quantile(s / 20) for s in range(21)))
    assert (sizes.mean, sizes.largest, sizes.over(95)) == (50.5, 100, 5)
