"""The figures of docs/structured_output.md, and of grammars in docs/security.md, are the code's."""

from __future__ import annotations

import re

import pytest

from engine.grammar import compiler, dialects, limits, matcher, spec
from tests.support.named_tests import page

pytestmark = pytest.mark.quick

MIB, GIB = 1 << 20, 1 << 30
# What each page says.
SAID = {
    "structured_output.md": (
        f"At most {spec.MAX_GRAMMAR_BYTES // MIB} MiB of text",
        f"over {spec.MAX_GRAMMAR_BYTES // MIB} MiB",
        f"over {limits.COMPILE_CPU_SECONDS} seconds of processor time",
        f"over {limits.COMPILE_BYTES // GIB} GiB",
        f"over {matcher.TOKEN_CPU_SECONDS:g} second,",
        f"after {limits.COMPILE_SECONDS:g} seconds",
        f"The {compiler.MAX_CACHED} grammars",
        f"({compiler.MAX_CACHED_BYTES // MIB} MiB of text at most)",
        f"{limits.parser_limits().max_lexer_states:,} states",
    ),
    "security.md": (
        f"{limits.COMPILE_CPU_SECONDS} seconds of processor time and "
        f"{limits.COMPILE_BYTES // GIB} GiB",
        f"{spec.MAX_GRAMMAR_BYTES // MIB} MiB at most, and of those that are kept there are "
        f"{compiler.MAX_CACHED}, of {compiler.MAX_CACHED_BYTES // MIB} MiB",
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_the_limits_are_those_of_the_code(name: str) -> None:
    text = re.sub(r"\s+", " ", page(name))
    for said in SAID[name]:
        assert said in text, said


def test_the_limit_of_white_space_is_that_of_the_code() -> None:
    found = re.search(r"at most (\d+) characters at a place", page("structured_output.md"))
    assert found is not None
    assert dialects._SCHEMA_DEFAULTS["whitespace_pattern"].endswith(f"{{1,{found[1]}}}")
