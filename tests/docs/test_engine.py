"""What docs/engine.md says of the parameters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from engine import beam_params
from engine import sampling_params as limits
from engine.sampling_params import SamplingParams
from jobs import parameters
from jobs.parameters import CHECKS
from tests.support.measured import newest_result

pytestmark = pytest.mark.quick

PAGE = (Path(__file__).parents[2] / "docs" / "engine.md").read_text("utf-8")
# By parameter: its default, and the rest of its row.
ROWS = {
    name: (default, rest)
    for name, default, rest in re.findall(
        r"^\| `(\w+)` \| ([^|]+) \|(.*)\|$", PAGE.split("### What it costs")[0], re.MULTILINE
    )
}
WRITTEN: dict[str, Any] = {
    "none": ((), None),
    "all": (None,),
    "false": (False,),
    "0 (all)": (0,),
    "1 (none)": (1,),
}

OF_THE_WORKER = {"n": "1", "use_beam_search": "false"}  # the engine does not know them


def test_every_parameter_is_there_and_no_other() -> None:
    assert ROWS.keys() == CHECKS.keys()


def test_defaults_are_those_of_the_engine() -> None:
    defaults = SamplingParams()
    for name, (written, _) in ROWS.items():
        if name == "seed":
            assert written == "of the job's seed and the row"
        elif name in OF_THE_WORKER:
            assert written == OF_THE_WORKER[name]
        elif written in WRITTEN:
            assert getattr(defaults, name) in WRITTEN[written], name
        else:
            assert getattr(defaults, name) == float(written), name


def test_limits_are_those_of_both_copies() -> None:
    for name, said in {
        "logit_bias": f"up to {limits.MAX_BIASED_TOKENS:,} token ids, each -{limits.MAX_BIAS:g} to",
        "allowed_token_ids": f"1 to {limits.MAX_ALLOWED_TOKENS:,} token ids",
        "repetition_penalty": "{:g} to {:g}".format(*parameters.REPETITION_PENALTIES),
        "presence_penalty": "{} to {}".format(*parameters.OPENAI_PENALTIES),
        "frequency_penalty": "{} to {}".format(*parameters.OPENAI_PENALTIES),
        "bad_words": f"up to {limits.MAX_BAD_WORDS} texts of at most {limits.MAX_BAD_WORD_TOKENS}",
        "bad_words_ids": f"up to {limits.MAX_BAD_WORDS} lists of 1 to {limits.MAX_BAD_WORD_TOKENS}",
        "logprobs": f"0 to {limits.MAX_LOGPROBS} likeliest",
        "n": f"1 to {parameters.MAX_N}",
        "num_beams": f"1 to {beam_params.MAX_BEAMS}",
        "length_penalty": f"{-beam_params.MAX_LENGTH_PENALTY:g} to",
        "stop": f"up to {parameters.MAX_STOP_STRINGS} texts",
    }.items():
        assert said in ROWS[name][1], name


@pytest.mark.parametrize(
    ("load", "row"),
    [
        ("decode", "all rows decode"),
        ("churn", "rows end and others follow"),
        ("tight", "the same, where the pool is too small, so that fewer run"),
    ],
)
def test_what_a_step_costs_the_host_is_what_was_measured(load: str, row: str) -> None:
    found = newest_result("scheduler")["results"][load]["of_the_processor"]
    assert f"| {row} | {found['fastest_tenth_ms']} | {found['median_ms']} |\n" in PAGE


def test_what_the_whole_half_of_the_host_takes_is_what_was_measured() -> None:
    found = newest_result("host_step")["of_the_processor"]["distinct rows"]
    whole, plan = (found[part]["fastest_tenth_ms"] for part in ("whole", "attention plan"))
    assert f": {whole} ms of rows that have nothing in common" in PAGE
    assert f" {plan} ms of them for the plan" in PAGE
