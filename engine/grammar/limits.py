"""How much work and memory a grammar may take."""

from __future__ import annotations

import llguidance

# Time on a processor, so that a busy machine refuses no grammar that an idle one takes.
COMPILE_CPU_SECONDS = 10
# For a compilation that waits for something and will never get it.
COMPILE_SECONDS = 120.0
COMPILE_BYTES = 2 << 30  # of address space, which is more than it uses


def parser_limits() -> llguidance.LLParserLimits:
    """The library's own limits: its defaults, but for the memory that one grammar may keep.

    A state of a lexer takes one or two kilobytes, and they are kept as long as the grammar.
    """
    return llguidance.LLParserLimits(max_lexer_states=50_000, verbose_errors=False)
