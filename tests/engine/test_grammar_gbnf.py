"""GBNF allows in Lark what it allows by itself; what is none is refused with its line."""

from __future__ import annotations

import re

import llguidance
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.grammar.gbnf import to_lark

BYTES = llguidance.LLTokenizer("byte")


def allows(lark: str, text: str) -> bool:
    """Whether the whole text is a sentence of the grammar."""
    matcher = llguidance.LLMatcher(BYTES, lark, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    data = list(text.encode())
    return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()


SAMPLES = {
    "literals": (
        r'root ::= "a\n\"\x41\u00e9\U0001F600" | "" | "é\\"', ['a\n"Aé\U0001f600', "", "é\\"], ["a"]
    ),
    "classes": (
        r'root ::= [a-c\-\]x] [^a-c\n] "." .', ["ad.\n", "-é.x", "]z..", "x-.é"], ["ab..", "a\n.x"]
    ),
    "a dash at the end": ("root ::= [+-] [a-]", ["+a", "--"], ["0a"]),
    "times": (
        'root ::= "a"* "b"+ "c"? [d]{2} "e"{1,} "f"{,2} ("g" | "h"){2,3}',
        ["bddegh", "aabbcddeeffggg"],
        ["bdeg", "bddeg", "abddefffgg"],
    ),
    "lines and comments": (
        'root ::= # one\n  first |\n  second-rule # two\n\nfirst ::=\n "1"\nsecond-rule ::= ( "2"\n'
        '  | third_rule )\nthird_rule ::= "#3"',
        ["1", "2", "#3"],
        ["12"],
    ),
    "recursion": (
        'root ::= expr\nexpr ::= term ("+" term)*\nterm ::= num | "(" expr ")"\nnum ::= [0-9]+',
        ["1", "12+(3+4)", "((5))"],
        ["+1", "(1", "1+"],
    ),
    "words beside a literal": ('root ::= [a-z]+ "x" [a-z]*', ["ax", "axbx"], ["x", "ab"]),
    "names of either case": (
        'root ::= someRule some-rule some_rule\nsomeRule ::= "1"\nsome-rule ::= "2"\n'
        'some_rule ::= "3"',
        ["123"],
        ["111"],
    ),
    "sql": (
        'root ::= select_statement\nselect_statement ::= "SELECT " column " from " table\n'
        'column ::= "col_1" | "col_2"\ntable ::= "table_1" | "table_2"',
        ["SELECT col_2 from table_1"],
        ["SELECT * from table_1"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_what_a_grammar_allows(name: str) -> None:
    grammar, sentences, others = SAMPLES[name]
    lark = to_lark(grammar)
    for text in sentences:
        assert allows(lark, text), (text, lark)
    for text in others:
        assert not allows(lark, text), (text, lark)


REFUSED = {
    "": "no rule root",
    'a ::= "b"': "no rule root",
    "root ::= other": "root names other, which is no rule",
    'root ::= "a': "line 1",
    'root ::= "a"\nx ::= (b': "line 2: there should be a closing parenthesis",
    'root ::= "a")': "line 1",
    'root ::= "a"{3,2}': "line 1: there should be a number of times",
    'root ::= "a"{,}': "a number of times",
    "root ::= []": "a character in the brackets",
    "root ::= [z-a]": "a range of characters",
    r'root ::= "\ud800"': "a character of Unicode",
    r'root ::= "\xg"': "digits behind",
    'root ::= "a"\nroot ::= "b"': "two rules root",
    '"a" ::= "b"': "there should be a rule",
}


@pytest.mark.parametrize("grammar", REFUSED)
def test_what_is_no_grammar_is_refused_with_its_line(grammar: str) -> None:
    with pytest.raises(ValueError, match=re.escape(REFUSED[grammar])):
        to_lark(grammar)


_atoms = st.one_of(
    st.text("ab", max_size=2).map(lambda t: (f'"{t}"', re.escape(t))),
    st.sampled_from([("[ab]", "[ab]"), ("[^a]", "[^a]"), (".", "(?s:.)")]),
)
_expressions = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(
            lambda many: (" ".join(g for g, _ in many), "".join(r for _, r in many))
        ),
        st.lists(inner, min_size=2, max_size=3).map(
            lambda many: (
                f"({' | '.join(g for g, _ in many)})",
                f"(?:{'|'.join(r for _, r in many)})",
            )
        ),
        st.tuples(inner, st.sampled_from(["*", "?", "{1,2}", "{2}"])).map(
            lambda pair: (f"({pair[0][0]}){pair[1]}", f"(?:{pair[0][1]}){pair[1]}")
        ),
    ),
    max_leaves=5,
)


@settings(deadline=None, max_examples=150)
@given(_expressions, st.lists(st.text("abc", max_size=5), min_size=1, max_size=6))
def test_a_grammar_without_recursion_is_a_regular_expression(
    expression: tuple[str, str], texts: list[str]
) -> None:
    grammar, regex = expression
    lark = to_lark(f"root ::= {grammar}")
    for text in texts:
        assert allows(lark, text) == bool(re.fullmatch(regex, text)), (text, lark)
