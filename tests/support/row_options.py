"""An example of every option that a row may have."""

from __future__ import annotations

from typing import Any

from jobs.parameters import CHECKS
from jobs.structured import NAMES

# By name: the row's keys, with what else it takes for the option to mean something.
OPTIONS: dict[str, dict[str, Any]] = {
    "max_tokens": {"max_tokens": 3},
    "temperature": {"temperature": 0.5},
    "top_k": {"top_k": 4},
    "top_p": {"top_p": 0.5},
    "min_p": {"min_p": 0.25},
    "seed": {"seed": 5},
    "repetition_penalty": {"repetition_penalty": 1.5},
    "presence_penalty": {"presence_penalty": 0.5},
    "frequency_penalty": {"frequency_penalty": 0.5},
    "logit_bias": {"logit_bias": {"7": 1}},
    "allowed_token_ids": {"allowed_token_ids": [7, 8]},
    "bad_words": {"bad_words": "no"},
    "bad_words_ids": {"bad_words_ids": [[7]]},
    "min_tokens": {"min_tokens": 2},
    "stop": {"stop": "x"},
    "include_stop_str_in_output": {"include_stop_str_in_output": True, "stop": "x"},
    "stop_token_ids": {"stop_token_ids": [9]},
    "ignore_eos": {"ignore_eos": True},
    "n": {"n": 2},
    "logprobs": {"logprobs": 2},
    "prompt_logprobs": {"prompt_logprobs": 0},
    "use_beam_search": {"use_beam_search": True, "n": 2},
    "num_beams": {"num_beams": 3},
    "length_penalty": {"length_penalty": 0.5},
    "early_stopping": {"early_stopping": "never"},
    "response_format": {"response_format": {"type": "json_object"}},
    "structured_outputs": {"structured_outputs": {"regex": "a"}},
    "json_schema": {"json_schema": {"type": "null"}},
}
assert OPTIONS.keys() == {*CHECKS, *NAMES}
