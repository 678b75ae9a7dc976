"""What a key of a row, or a column, means by its name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from jobs.parameters import CHECKS
from jobs.unsupported import UNSUPPORTED


class Kind(Enum):
    """What a top-level key of a row, or a column, is to us."""

    PROMPT = "prompt"
    MESSAGES = "messages"
    CUSTOM_ID = "custom_id"
    PARAMETER = "parameter"
    CHAT = "chat"  # goes to the chat template beside the messages
    CONTINUATIONS = "continuations"  # of a row that is scored
    GRAMMAR = "grammar"  # what the answer has to be
    LINE = "line"  # one of the keys of an OpenAI batch file, where it is one
    UNSUPPORTED = "unsupported"  # a parameter of the field that we do not have yet
    MISSPELT = "misspelt"  # so near to one of our names that ignoring it would be wrong
    DATA = "data"  # the user's own: carried to the output


@dataclass(frozen=True, slots=True)
class Meaning:
    """The verdict on a key.

    Attributes:
        name: which name of ours a misspelt key probably meant; which parameter an unsupported
            one is, however it is written.
    """

    kind: Kind
    name: str | None = None


# Names that other engines give to parameters of ours.
_ALIASES = {
    "max_completion_tokens": "max_tokens",
    "max_gen_len": "max_tokens",
    "max_length": "max_tokens",
    "max_new_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "n_predict": "max_tokens",
    "num_predict": "max_tokens",
    "min_new_tokens": "min_tokens",
    "min_token": "min_tokens",
    "num_return_sequences": "n",
    "beam_size": "num_beams",
    "beam_width": "num_beams",
    "temp": "temperature",
    "repeat_penalty": "repetition_penalty",
    "sequence_bias": "logit_bias",
    "bad_word": "bad_words",
    "random_seed": "seed",
    "stop_sequence": "stop",
    "stop_sequences": "stop",
    "stop_strings": "stop",
    "stop_words": "stop",
    "eos_token_id": "stop_token_ids",
    "stop_ids": "stop_token_ids",
    "stop_tokens": "stop_token_ids",
    "template_kwargs": "chat_template_kwargs",
}
_OWN = {
    "prompt": Kind.PROMPT,
    "messages": Kind.MESSAGES,
    "custom_id": Kind.CUSTOM_ID,
    "tools": Kind.CHAT,
    "tool_choice": Kind.CHAT,
    "chat_template_kwargs": Kind.CHAT,
    "reasoning_effort": Kind.CHAT,
    "response_format": Kind.GRAMMAR,
    "structured_outputs": Kind.GRAMMAR,
    "json_schema": Kind.GRAMMAR,
}
# Names of data are too near to two of ours: `n_tokens` and `ad_words` are nobody's slip.
_GUESSED = (
    *(name for name in CHECKS if name not in ("min_tokens", "bad_words")),
    "chat_template_kwargs",
)
LONGEST_NAME = 64  # a longer key is no slip of the pen
# Parameters that are columns of an output too; there they are lists, and data.
LOGPROBS_OF_ANSWERS = frozenset({"logprobs", "prompt_logprobs"})


def meaning(key: str) -> Meaning:
    """What `key` is, by its name alone."""
    return Meaning(Kind.DATA) if len(key) > LONGEST_NAME else _meaning(key)


@lru_cache(maxsize=4096)  # files repeat their keys; the bound is for files that do not
def _meaning(key: str) -> Meaning:
    if key in _OWN:
        return Meaning(_OWN[key])
    if key in CHECKS:
        return Meaning(Kind.PARAMETER)
    folded = _fold(key)
    if folded.startswith("guided") and folded != "guided":
        return Meaning(Kind.UNSUPPORTED, key)
    known = _FOLDED.get(folded)
    if known in UNSUPPORTED:
        return Meaning(Kind.UNSUPPORTED, known)
    near = known or _misspelt(key, folded)
    return Meaning(Kind.MISSPELT, near) if near else Meaning(Kind.DATA)


def _fold(key: str) -> str:
    """The key without case and separators: `maxTokens`, `max-tokens` and `MAX_TOKENS` are one."""
    return re.sub(r"[^a-z0-9]", "", key.lower())


_FOLDED = {_fold(name): name for name in (*UNSUPPORTED, *_OWN, *CHECKS)} | {
    _fold(alias): name for alias, name in _ALIASES.items()
}


def _misspelt(key: str, folded: str) -> str | None:
    for name in _GUESSED:
        target = _fold(name)
        # Four letters are too few for guesses: `need` is not a misspelt `seed`.
        allowed = 0 if len(target) < 5 else 1 if len(target) < 9 else 2
        if allowed == 0 or abs(len(folded) - len(target)) > allowed:
            continue
        # More words than the name has: `temperature_c` is somebody's column of its own.
        if len(re.findall(r"[A-Za-z0-9]+", key)) > name.count("_") + 1:
            continue
        if _edits(folded, target) <= allowed:
            return name
    return None


def _edits(a: str, b: str) -> int:
    """Optimal string alignment distance: insertions, deletions, substitutions, swaps."""
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i in range(1, len(a) + 1):
        row = [i]
        for j in range(1, len(b) + 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]))
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]
