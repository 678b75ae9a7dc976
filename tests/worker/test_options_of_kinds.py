"""Every option has an effect on a row of every kind, or is that row's error."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import RequestError
from engine.request import Request
from jobs.beam_rules import check_beams
from jobs.errors import RowError
from jobs.kinds import JobKind
from jobs.parameters import check_parameter
from jobs.records import ChunkLease
from jobs.structured import GRAMMAR, NAMES, check_grammar
from tests.support.row_options import OPTIONS
from tests.support.submissions import prepare_lines
from worker.requests import row_sampling
from worker.task_requests import prepare

pytestmark = pytest.mark.quick

TEXT = {"prompt": "ab"}
BEAMS = {"prompt": "ab", "num_beams": 2}
CHOICES = {"prompt": "ab", "choices": [" c", " d"]}
# What beam search refuses.
NOT_OF_BEAMS = {
    "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "logit_bias", "allowed_token_ids", "bad_words", "bad_words_ids",
    "min_tokens", "stop", "include_stop_str_in_output", "logprobs", "prompt_logprobs",
    "response_format", "structured_outputs", "json_schema",
}  # fmt: skip
# What asks for a search that a row which is sampled does not make.
OF_BEAMS = {"length_penalty", "early_stopping"}


class Encoder:
    """One token a character."""

    longest_token = 1
    opening_token = 0

    def encode_prompts(self, texts: list[str]) -> list[list[int]]:
        return [[ord(c) for c in t] for t in texts]

    encode_openings = encode_chats = encode_prompts


@pytest.mark.parametrize(
    ("kind", "plain", "code", "refused"),
    [
        (JobKind.GENERATE, TEXT, "invalid_parameter", OF_BEAMS),
        (JobKind.GENERATE, BEAMS, "invalid_parameter", NOT_OF_BEAMS),
        (JobKind.SCORE, CHOICES, "unsupported_parameter", OPTIONS.keys()),
        (JobKind.EMBED, TEXT, "unsupported_parameter", OPTIONS.keys()),
    ],
    ids=["generate", "beams", "score", "embed"],
)
def test_every_option_counts_or_is_refused(
    tmp_path: Path,
    lease: ChunkLease,
    kind: JobKind,
    plain: dict[str, Any],
    code: str,
    refused: set[str],
) -> None:
    rows = [plain, *({**plain, **option} for option in OPTIONS.values())]
    done = prepare_lines(tmp_path, *rows, kind=kind)
    names = dict(enumerate(OPTIONS, start=2))
    errors = {names[line]: (found, field) for line, found, field in done.errors()}
    assert errors.keys() == refused
    for name, (found, field) in errors.items():
        assert found == code
        assert str(field).split(".")[0] in OPTIONS[name], name
    lease = dataclasses.replace(lease, options=done.job.options)
    (batch,) = prepare(lease, [raw(row) for row in done.rows()], Encoder(), 100)  # type: ignore[arg-type]
    assert not batch.refused
    asked = {row.row_index + 1: tuple(map(question, row.requests)) for row in batch.rows}
    for line, name in names.items():
        assert name in refused or asked[line] != asked[1], name


def raw(row: dict[str, Any]) -> dict[str, Any]:
    """A row as the copy holds it; it gets a seed, as one of its own would tell it apart."""
    if row["continuations"] is None:
        row["params"] = {"seed": 1} | (row["params"] or {})
    return {k: json.dumps(v) if isinstance(v, dict | list) else v for k, v in row.items()}


def question(request: Request) -> tuple[Any, ...]:
    return request.params, request.task, request.token_ids, request.sample_index


def checked(option: dict[str, Any]) -> dict[str, Any]:
    """As the normalized copy has it."""
    return {
        GRAMMAR if name in NAMES else name: (
            check_grammar({name: value}) if name in NAMES else check_parameter(name, value)
        )
        for name, value in option.items()
    }


SOME = st.dictionaries(st.sampled_from(sorted(OPTIONS)), st.just(None), max_size=4).map(
    lambda names: checked({k: v for name in names for k, v in OPTIONS[name].items()})
)
WIDTHS = st.fixed_dictionaries(
    {},
    optional={
        "num_beams": st.integers(1, 5),
        "n": st.sampled_from([1, 2, 3, 65]),
        "use_beam_search": st.booleans(),
        "stop": st.just([]),
        "length_penalty": st.just(1.0),
        "temperature": st.just(0.0),
    },
)


@given(own=st.tuples(SOME, WIDTHS), of_job=st.tuples(SOME, WIDTHS))
def test_a_row_is_refused_on_submission_where_the_engine_refuses_it(
    own: tuple[dict[str, Any], ...], of_job: tuple[dict[str, Any], ...]
) -> None:
    row, job = own[0] | own[1], of_job[0] | of_job[1]
    lease = ChunkLease(
        "c", "j", 1, 0, 0, 1, 1, "me", "m", "f", "p", {"sampling": job}, seed=7, priority=0
    )  # fmt: skip
    here = there = None
    try:
        check_beams(row, job)
    except RowError as error:
        here = error.code, error.field
    try:
        row_sampling(lease, {"row_index": 0, "params": json.dumps(row)})
    except (RequestError, RowError) as error:
        there = error.code, error.field
    assert (here is None) == (there is None), (here, there)
