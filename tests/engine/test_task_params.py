"""A request that scores or embeds samples nothing, and is refused if it has parameters."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from engine.errors import RequestError
from engine.grammar.spec import GrammarKind, GrammarSpec
from engine.messages import AddRequests, decode, encode
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.task import Embed, Score, Task
from tests.support.row_options import OPTIONS

pytestmark = pytest.mark.quick

GRAMMAR = GrammarSpec(GrammarKind.REGEX, "a", "structured_outputs.regex")
# By parameter, a value that is not its default, and what the row calls it.
PARAMS: dict[str, dict[str, Any]] = {
    name: OPTIONS[name]
    for name in (field.name for field in dataclasses.fields(SamplingParams))
    if name in OPTIONS
}
PARAMS["num_return_sequences"] = {"num_return_sequences": 2, "num_beams": 2}
for of_beams in ("length_penalty", "early_stopping"):
    PARAMS[of_beams] = {**PARAMS[of_beams], "num_beams": 2}


@pytest.mark.parametrize("task", [Score(1), Embed()], ids=["score", "embed"])
def test_every_parameter_is_refused(task: Task) -> None:
    found = {}
    for name, values in PARAMS.items():
        with pytest.raises(RequestError, match="means nothing to") as caught:
            Request("r", (1, 2), SamplingParams.from_json(values), task=task)
        assert caught.value.code == "invalid_parameter"
        found[name] = caught.value.field
    with pytest.raises(RequestError) as caught:
        Request("r", (1, 2), SamplingParams(grammar=GRAMMAR), task=task)
    assert caught.value.field == GRAMMAR.field
    assert {*PARAMS, "grammar"} == {f.name for f in dataclasses.fields(SamplingParams)}
    for name, field in found.items():
        assert field in PARAMS[name], name


def test_in_a_message_it_is_that_requests_error() -> None:
    good = Request("good", (1, 2), task=Score(1))
    body = json.loads(encode(AddRequests((good, Request("bad", (3, 4), task=Embed())))))
    body["requests"][1]["params"] = {"temperature": 1.0}
    found = decode(json.dumps(body).encode())
    assert isinstance(found, AddRequests)
    assert found.requests == (good,)
    (end,) = found.unreadable
    assert (end.request_id, end.error_code, end.error_field) == (
        "bad", "invalid_parameter", "temperature",
    )  # fmt: skip


def test_beams_refuse_a_grammar_by_the_rows_own_name() -> None:
    with pytest.raises(RequestError, match="does not go with beam search") as caught:
        SamplingParams(num_beams=2, grammar=GRAMMAR)
    assert caught.value.field == GRAMMAR.field
